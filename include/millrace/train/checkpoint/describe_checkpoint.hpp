#pragma once
#include <string>

namespace millrace {

// A readable description of one checkpoint file.
struct CheckpointText {
  std::string text;
  std::string damage;  // an error message that names the tensors with wrong checksums; "" if there are none
  std::string config;  // text of config.cfg
};
enum class CheckpointDetail {
  state,    // step, epoch and whether it is intact
  network,  // also the network, where the run took place, and tensors with wrong checksums
  tensors   // also all tensors with shapes and checksums
};
// Reads the whole file and verifies all checksums. Error(data) if it is not a checkpoint.
CheckpointText describe_checkpoint(const std::string& path, CheckpointDetail = CheckpointDetail::tensors);

// Of a file in the format safetensors: what millrace says in it of the model, or that another program wrote it, and the
// number of tensors, or all of them with their shapes. Error(data): it is damaged.
CheckpointText describe_safetensors(const std::string& path, bool tensors);

}  // namespace millrace
