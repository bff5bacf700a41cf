#include <fmt/core.h>

#include <filesystem>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/train/commands.hpp"
#include "train/checkpoint/export_model.hpp"
#include "train/evaluate.hpp"
#include "train/resume.hpp"
#include "train/session/network_spec.hpp"

namespace millrace {

static void write_model(const RunConfig& config, const CheckpointModel& model, const NetworkSpec& spec,
                        ExportFormat format, const std::string& output) {
  switch (format) {
    case ExportFormat::safetensors:
      return export_safetensors(model, spec, output);
    case ExportFormat::onnx:
      return export_onnx(model, spec, config.data.sample == SampleKind::pair, output);
    case ExportFormat::pt2:
      return export_archive(model, spec, output);
  }
}

Exit export_model(World& world, const RunConfig& config, const CheckpointChoice& choice, ExportFormat format,
                  const std::string& output) {
  const CheckpointModel model = find_checkpoint(world, choice);
  require_same_function(model, config);
  if (!model.record)
    fail(Exit::config, "{} was written by a version that did not store its model. train again to export it",
         model.path.string());
  if (format == ExportFormat::safetensors && model.path.extension() != ".h5")
    fail(Exit::config, "{} has the format of an export already. copy the file", model.path.string());
  if (format == ExportFormat::pt2 && config.model.name != ModelName::pt2)
    fail(Exit::config,
         "--format pt2: the network does not come from a .pt2 file (model.name = pt2). use --format safetensors or "
         "--format onnx");
  const NetworkSpec spec = trained_network_spec(world, config, *model.record);
  std::string problem;
  Exit code = Exit::data;
  if (world.rank() == 0) try {
      write_model(config, model, spec, format, output);
      log::info(fmt::format("wrote {} ({}): the weights of step {}", output,
                            format_bytes(std::filesystem::file_size(output)), model.step));
    } catch (const Error& e) {
      problem = e.what();
      code = e.code();
    } catch (const std::exception& e) {
      problem = e.what();
    }
  world.agree(code, problem);
  return Exit::ok;
}

}  // namespace millrace
