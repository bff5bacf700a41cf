// Sizes and places of the tensors of an archive.
#pragma once
#include "millrace/pt2/exported_program.hpp"

namespace millrace::pt2 {

inline const std::string weights_folder = "data/weights/", constants_folder = "data/constants/";
inline const std::string weights_record = weights_folder + "model_weights_config.json";
inline const std::string constants_record = constants_folder + "model_constants_config.json";
inline const std::string graph_record = "models/model.json";

// In bytes; 0: a type whose values cannot be read, such as a complex one.
std::size_t element_bytes(ScalarType);
// Error(data): an extent or a stride is negative, or elements lie beyond a record of so many bytes.
void require_fits(const StoredTensor&, std::uint64_t record_bytes);

}  // namespace millrace::pt2
