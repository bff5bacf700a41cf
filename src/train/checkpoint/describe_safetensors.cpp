#include <fmt/core.h>

#include "millrace/base/printable.hpp"
#include "millrace/train/checkpoint/describe_checkpoint.hpp"
#include "millrace/weights/safetensors.hpp"
#include "train/checkpoint/checkpoint_file.hpp"
#include "train/checkpoint/export_model.hpp"

namespace millrace {

CheckpointText describe_safetensors(const std::string& path, bool tensors) {
  const SafetensorsFile file(path);
  CheckpointText out;
  if (has_configuration(file)) {
    const CheckpointModel model = read_safetensors_model(path);
    out.text = fmt::format("{}: weights of step {}\n", path, model.step);
    if (model.record) out.text += describe(*model.record);
    out.config = model.config;
  } else {
    out.text = path + (file.metadata().contains(written_by_key) ? ": weights without a configuration\n"
                                                                : ": weights of another program\n");
  }
  constexpr std::size_t most = 500;  // bytes of a name
  std::int64_t values = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    values += tensor.count();
    if (tensors) out.text += fmt::format("  {}  {} {}\n", printable(name, most), tensor.type, shape_text(tensor.shape));
  }
  out.text += fmt::format("{} tensors with {} values{}\n", file.tensors().size(), values,
                          tensors ? "" : ", which --tensors lists");
  return out;
}

}  // namespace millrace
