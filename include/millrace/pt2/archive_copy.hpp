// A copy of an exported network with other values of some tensors.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "millrace/pt2/exported_program.hpp"

namespace millrace::pt2 {

// Fills `out` with the first elements of the tensor, in the order of its axes, the last one fastest. false: it keeps
// its values.
using NewValues = std::function<bool(const StoredTensor&, std::vector<double>& out)>;

// Copies the archive byte by byte, but for the values of tensors, which are rounded to their types, the checksums of
// their records, and the comment of the archive: "millrace " and `note`. Error(data): the archive is damaged, the path
// has a file that millrace did not write, or the copy cannot be written, such as on a full disk; then nothing is left.
void write_archive_copy(const ExportedProgram&, const std::filesystem::path& out, const std::string& note,
                        const NewValues&);

}  // namespace millrace::pt2
