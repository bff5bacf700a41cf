#include <fmt/core.h>

#include <filesystem>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/train/commands.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/evaluate.hpp"
#include "train/resume.hpp"
#include "train/session/network_spec.hpp"

namespace millrace {

Exit export_weights(World& world, const RunConfig& config, const CheckpointChoice& choice, const std::string& output) {
  const CheckpointModel model = find_checkpoint(world, choice);
  require_same_function(model, config);
  if (!model.record)
    fail(Exit::config, "{} was written by a version that did not store its model. train again to export it",
         model.path.string());
  if (model.path.extension() != ".h5")
    fail(Exit::config, "{} has the format of an export already. copy the file", model.path.string());
  const NetworkSpec spec = trained_network_spec(world, config, *model.record);
  std::string problem;
  if (world.rank() == 0) try {
      export_safetensors(model, spec, output);
      log::info(fmt::format("wrote {} ({}): the weights of step {}", output,
                            format_bytes(std::filesystem::file_size(output)), model.step));
    } catch (const std::exception& e) {
      problem = e.what();
    }
  world.agree(Exit::data, problem);
  return Exit::ok;
}

}  // namespace millrace
