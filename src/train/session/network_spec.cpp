#include "train/session/network_spec.hpp"

#include "millrace/base/error.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/train/session/make_compute.hpp"
#include "train/session/input_options.hpp"

namespace millrace {
namespace {

void require_matching_loss(const ModelOptions& c, const ShardIndex& data) {
  if (c.loss == Loss::cross_entropy && !data.y.labels)
    fail(Exit::config, "model.loss: cross_entropy needs class labels, but data.y holds targets. set it to auto");
  if (c.loss == Loss::mse && data.y.labels)
    fail(Exit::config, "model.loss: mse needs float targets, but data.y holds class labels. set it to auto");
  if (data.y.labels && data.classes.count < 1)
    fail(Exit::data,
         "no sample has a label (every y is negative). if the files hold tokens, which are their own targets, set "
         "data.sample = tokens");
}

ModelSpec model_spec(const RunConfig& c, const ShardIndex& data) {
  require_matching_loss(c.model, data);
  ModelSpec m;
  m.name = value_text(c, "model.name");
  m.depth = c.model.depth;
  m.width = c.model.width;
  m.stem = value_text(c, "model.stem");
  m.hidden = c.model.hidden;
  m.activation = activation_from(c.model.activation);
  m.dropout = float(c.model.dropout);
  m.label_smoothing = float(c.model.label_smoothing);
  m.layers = c.model.layers;
  m.size = c.model.size;
  m.blocks = c.model.blocks;
  m.heads = c.model.heads;
  m.key_heads = c.model.key_heads;
  m.feed_forward = c.model.feed_forward;
  m.patch = c.model.patch;
  m.rotary_base = c.model.rotary_base;
  m.drop_path = c.model.drop_path;
  m.seed = c.run.seed;
  m.mean_squared_error = !data.y.labels;
  m.tokens = data.view.sample == SampleKind::tokens;
  m.outputs = data.y.labels ? data.classes.count : data.y.target.count();
  m.input = input_spec(c.data, data, c.run.seed);
  return m;
}

OptimizerSpec::Kind optimizer_kind(OptimizerName name) {
  switch (name) {
    case OptimizerName::sgd:
      break;
    case OptimizerName::adamw:
      return OptimizerSpec::Kind::adamw;
    case OptimizerName::lars:
      return OptimizerSpec::Kind::lars;
    case OptimizerName::lamb:
      return OptimizerSpec::Kind::lamb;
  }
  return OptimizerSpec::Kind::sgd;
}

OptimizerSpec optimizer_spec(const OptimOptions& o) {
  OptimizerSpec s;
  s.kind = optimizer_kind(o.name);
  s.momentum = float(o.momentum);
  s.nesterov = o.nesterov;
  s.trust_coefficient = float(o.trust_coefficient);
  s.beta1 = float(o.beta1);
  s.beta2 = float(o.beta2);
  s.epsilon = float(o.epsilon);
  s.clip = float(o.clip);
  s.average = o.ema > 0 ? float(1 - o.ema) : 0;
  return s;
}

}  // namespace

NetworkSpec network_spec(const World& world, const RunConfig& c, bool training, const DataSets& sets,
                         const Batching& batching) {
  const ShardIndex& data = sets.reference();
  NetworkSpec spec;
  spec.model = model_spec(c, data);
  spec.batch = {0, data.sample, data.x.dtype, data.y.target, data.y.labels};
  spec.compute = dtype_of(c.run.precision);
  spec.fusion = c.model.fusion;
  spec.optimizer = optimizer_spec(c.optim);
  spec.weight_decay = float(c.optim.weight_decay);
  if (training)  // an evaluation has no use for them, and may be of another network
    for (const std::string& group : c.optim.group) spec.groups.push_back(ParameterGroup::parse(group));
  spec.grad_dtype = world.size() == 1 ? DType::f32 : c.comm.grad_dtype;
  spec.seed = c.run.seed;
  spec.buckets.elements = std::int64_t(c.comm.bucket_size / sizeof(float));
  if (training && c.optim.zero) {
    spec.buckets.ranks = world.size();
    spec.buckets.rank = world.rank();
  }
  if (batching.train_order) spec.train_rows = batching.train_order->row_counts();
  if (batching.valid_order) spec.eval_rows = batching.valid_order->row_counts();
  return spec;
}

}  // namespace millrace
