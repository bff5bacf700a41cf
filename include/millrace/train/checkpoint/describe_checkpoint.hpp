#pragma once
#include <string>

namespace millrace {

// A description of one checkpoint file for people.
struct CheckpointText {
  std::string text;    // step, epoch, and tensors with shapes and checksums
  std::string damage;  // an error message that names the tensors with wrong checksums; "" when there are none
};
CheckpointText describe_checkpoint(const std::string& path);  // Error(data) when it is not a checkpoint

}  // namespace millrace
