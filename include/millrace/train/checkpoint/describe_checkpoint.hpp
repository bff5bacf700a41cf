#pragma once
#include <string>

namespace millrace {

// A readable description of one checkpoint file.
struct CheckpointText {
  std::string text;    // step, epoch, and tensors with shapes and checksums
  std::string damage;  // an error message that names the tensors with wrong checksums; "" if there are none
};
// Reads the whole file and verifies all checksums. Error(data) if it is not a checkpoint.
CheckpointText describe_checkpoint(const std::string& path);

}  // namespace millrace
