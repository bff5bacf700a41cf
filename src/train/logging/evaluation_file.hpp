// The results of an evaluation as JSON: in summary.json, and in the file that `millrace eval` writes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/session/evaluation.hpp"

namespace millrace {

// Adds the loss, the metrics and their tables to an object. prefix: of the names.
void put_evaluation(nlohmann::json& out, const std::string& prefix, const Evaluation&);

inline constexpr const char* evaluation_file_name = "evaluation.json";  // in the folder of a run

// What was evaluated.
struct EvaluatedData {
  std::int64_t step = 0;  // of the checkpoint
  std::string checkpoint;
  std::string split;               // part of data.split; "": the files
  std::vector<std::string> files;  // as the configuration names them
};

bool is_evaluation_file(const std::filesystem::path&);  // `millrace eval` wrote it
// Error(data): the path holds something else, or cannot be written.
void check_evaluation_path(const std::filesystem::path&);
void write_evaluation(const std::filesystem::path&, const EvaluatedData&, const Evaluation&);

}  // namespace millrace
