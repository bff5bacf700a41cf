// The network of a checkpoint: its function, and its NetworkSpec without data.
#include "millrace/base/error.hpp"
#include "train/session/network_spec.hpp"

namespace millrace {

NetworkSpec trained_network_spec(const World& world, const RunConfig& config, const ModelRecord& model) {
  DataSets sets;
  sets.trained = training_index(model);
  sets.trained->view = config.data;
  NetworkSpec spec = network_spec(world, config, false, sets, Batching{}, &model);
  spec.eval_rows = {1};
  spec.logits_memory = 0;
  require_function(spec, model, "");
  return spec;
}

std::vector<std::string> function_of(const NetworkSpec& spec) {
  ModelBatch one = spec.batch;
  one.rows = 1;
  return describe_function(build_model(spec.model, one, spec.compute, Mode::infer));
}

void require_function(const NetworkSpec& spec, const ModelRecord& trained, const std::string& where) {
  if (!has_comparable_function(trained)) return;
  const std::string difference = function_difference(trained.function, function_of(spec));
  if (difference.empty()) return;
  fail(Exit::config,
       "the checkpoint{} holds another network than the configuration and the data give: {}. restore the keys of model "
       "and data{}",
       where.empty() ? "" : " in " + where, difference, where.empty() ? "" : ", or set run.dir to a new folder");
}

}  // namespace millrace
