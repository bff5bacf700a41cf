#pragma once
#include <string>

namespace millrace {

// One checkpoint file: step, epoch, tensors with shapes and checksums; what is damaged in it, or nothing.
struct CheckpointText {
  std::string text, damage;
};
CheckpointText describe_checkpoint(const std::string& path);

}  // namespace millrace
