#include "train/session/network_spec.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "millrace/base/error.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/model/pt2/import.hpp"
#include "millrace/train/session/make_compute.hpp"
#include "train/session/exported_network.hpp"
#include "train/session/input_options.hpp"

namespace millrace {
namespace {

// nullopt: cross-entropy.
std::optional<PointwiseLossSpec::Kind> pointwise_loss(Loss loss, bool labels) {
  using Kind = PointwiseLossSpec::Kind;
  switch (loss) {
    case Loss::automatic:
      return labels ? std::nullopt : std::optional(Kind::mse);
    case Loss::cross_entropy:
      break;
    case Loss::mse:
      return Kind::mse;
    case Loss::mae:
      return Kind::mae;
    case Loss::smooth_l1:
      return Kind::smooth_l1;
    case Loss::binary_cross_entropy:
      return Kind::binary_cross_entropy;
  }
  return std::nullopt;
}

void require_binary_labels(const ShardIndex& data) {
  if (!data.y.labels) return;
  if (data.view.sample == SampleKind::tokens)
    fail(Exit::config, "model.loss: binary_cross_entropy has no use for tokens. set it to auto");
  if (data.y.label_maps())
    fail(Exit::config,
         "model.loss: binary_cross_entropy needs one vector of labels a sample, but data.y holds label maps. set it to "
         "auto");
  if (data.classes.count > 2)
    fail(Exit::config,
         "model.loss: binary_cross_entropy needs labels that are 0 or 1, but data.y has labels up to {}. set it to "
         "auto",
         data.classes.count - 1);
}

// labels / (classes * labels of the class), as scikit-learn's "balanced".
std::vector<float> balanced_weights(const ShardIndex& data) {
  const auto& counts = data.classes.label_counts;
  if (data.view.sample == SampleKind::tokens)
    fail(Exit::config, "model.class_weights: balanced is not for tokens, which are their own labels. remove the key");
  if (counts.empty())
    fail(Exit::config,
         "model.class_weights: balanced needs the labels of data.train, or a checkpoint that was trained with "
         "balanced. set data.train, or give a number for each class");
  const double labels = double(std::reduce(counts.begin(), counts.end()));
  std::vector<float> out;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0)
      fail(Exit::config,
           "model.class_weights: balanced finds no label {} in data.train, which has {} classes. give a number for "
           "each class, or add samples of it",
           c, counts.size());
    out.push_back(float(labels / (double(counts.size()) * double(counts[c]))));
  }
  return out;
}

std::vector<float> class_weights(const ModelOptions& c, const ShardIndex& data) {
  const auto& words = c.class_weights;
  if (words.empty()) return {};
  if (words[0] == balanced_class_weights) return balanced_weights(data);
  std::vector<float> weights;
  for (const std::string& word : words) weights.push_back(parse_number<float>(word));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (std::int64_t(weights.size()) != data.classes.count || !(sum > 0))
    fail(Exit::config, "model.class_weights: {} weights with the sum {:g} for {} classes. give one for each class",
         weights.size(), sum, data.classes.count);
  return weights;
}

// The losses of `loss` lines take the place of everything that the keys say about the loss.
bool has_own_losses(const ModelOptions& c) { return c.name == ModelName::layers && has_loss_lines(c.layers); }

MixOptions mix_options(const RunConfig& c, const ShardIndex& data, std::int64_t micro_batch) {
  const MixOptions out{float(c.train.mixup), float(c.train.cutmix), c.run.seed};
  if (!out.on()) return out;
  const char* key = out.mixup > 0 ? "mixup" : "cutmix";
  const auto refuse = [](bool refused, const char* name, const std::string& why) {
    if (refused) fail(Exit::config, "train.{}: {}. set train.{} = 0", name, why, name);
  };
  refuse(!data.inputs.empty(), key, "several inputs cannot be mixed");
  refuse(has_own_losses(c.model), key, "networks with `loss` lines cannot mix their labels");
  refuse(data.view.sample == SampleKind::tokens, key, "tokens cannot be mixed");
  refuse(pointwise_loss(c.model.loss, data.y.labels).has_value(), key,
         "only classes can be mixed, with model.loss = cross_entropy");
  refuse(data.y.target.rank > 0, key, fmt::format("label maps of {} cannot be mixed", data.y.target.str()));
  refuse(out.cutmix > 0 && data.sample.rank < 2, "cutmix",
         fmt::format("samples of {} have no box to exchange, which needs images", data.sample.str()));
  if (micro_batch < 2)
    fail(Exit::config, "train.{}: a micro-batch of one sample holds none to mix it with. raise train.micro_batch", key);
  return out;
}

std::vector<LossTarget> loss_targets(const ShardIndex& data) {
  const auto plain = [](const std::string& name) { return name.substr(name.starts_with('/')); };
  const TargetStorage& y = data.y;
  if (y.parts.empty()) return {{plain(y.name), 0, y.target.count(), y.labels ? data.classes.count : 0}};
  std::vector<LossTarget> out;
  std::int64_t begin = 0;
  for (const ConcatenatedPart& part : y.parts) {
    if (part.labels && part.classes < 1)
      fail(Exit::data, "data.y: no sample has a label in '{}' (all are negative). name another data set",
           plain(part.name));
    out.push_back({plain(part.name), begin, part.count, part.labels ? part.classes : 0});
    begin += part.count;
  }
  return out;
}

void require_no_loss_keys(const ModelOptions& c) {
  const auto refuse = [](bool given, const char* key, const char* option) {
    if (given) fail(Exit::config, "model.{}: the network has `loss` lines. remove the key{}", key, option);
  };
  refuse(c.loss != Loss::automatic, "loss", "");
  refuse(c.label_smoothing > 0, "label_smoothing", ", and write label_smoothing= in the line");
  refuse(!c.class_weights.empty(), "class_weights", ", or the `loss` lines");
  refuse(c.dice > 0, "dice", ", or the `loss` lines");
}

void require_matching_loss(const ModelOptions& c, const ShardIndex& data) {
  if (data.y.labels && data.classes.count < 1)
    fail(Exit::data,
         "no sample has a label (every y is negative). number the classes from 0; if the files hold tokens, which are "
         "their own targets, set data.sample = tokens");
  if (has_own_losses(c)) return require_no_loss_keys(c);
  if (data.y.has_label_parts())
    fail(Exit::config,
         "data.y: '{}' are labels and targets, or several labels. name one data set, or use model.name = layers with a "
         "line such as `loss cross_entropy y={}` for each",
         data.y.name, loss_targets(data)[0].name);
  const auto pointwise = pointwise_loss(c.loss, data.y.labels);
  if (!pointwise && !data.y.labels)
    fail(Exit::config, "model.loss: cross_entropy needs class labels, but data.y holds targets. set it to auto");
  if (pointwise == PointwiseLossSpec::Kind::binary_cross_entropy)
    require_binary_labels(data);
  else if (pointwise && data.y.labels)
    fail(Exit::config, "model.loss: {} needs float targets, but data.y holds class labels. set it to auto",
         name_of(*pointwise));
  if (pointwise && !c.class_weights.empty())
    fail(Exit::config, "model.class_weights: the loss is {}, not cross_entropy. remove the key", name_of(*pointwise));
  if (c.dice > 0 && (pointwise || data.y.target.rank == 0 || data.view.sample == SampleKind::tokens))
    fail(Exit::config, "model.dice: it needs cross_entropy and a label at each pixel. set model.dice = 0");
}

// micro_batch: in training.
ModelSpec model_spec(const RunConfig& c, const ShardIndex& data, std::optional<std::int64_t> micro_batch) {
  require_matching_loss(c.model, data);
  ModelSpec m;
  m.name = value_text(c, "model.name");
  m.depth = c.model.depth;
  m.width = c.model.width;
  m.stem = value_text(c, "model.stem");
  m.hidden = c.model.hidden;
  m.activation = activation_from(c.model.activation);
  m.dropout = float(c.model.dropout);
  m.attention_dropout = float(c.model.attention_dropout);
  m.separator = c.model.separator;
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
  m.transposed = c.model.upsample == Upsampling::transposed;
  m.seed = c.run.seed;
  m.pointwise_loss = pointwise_loss(c.model.loss, data.y.labels);
  m.beta = float(c.model.beta);
  m.class_weights = class_weights(c.model, data);
  m.dice = float(c.model.dice);
  if (micro_batch) m.mix = mix_options(c, data, *micro_batch);
  m.tokens = data.view.sample == SampleKind::tokens;
  m.outputs = m.pointwise_loss ? data.y.target.count() : data.classes.count;
  m.targets = loss_targets(data);
  m.own_losses = has_own_losses(c.model);
  m.inputs = named_inputs(c.data, data, c.run.seed);
  if (m.inputs.empty()) m.input = input_spec(c.data, data, c.run.seed);
  return m;
}

// Negative labels do not count: those of a signed type may be negative; a sample that cannot be read, and what
// augmentation moves in from outside of a label map, get -1.
bool some_labels_may_not_count(const RunConfig& c, const ShardIndex& data) {
  if (!data.y.labels) return false;
  if (c.data.on_error == OnError::skip || (data.y.label_maps() && c.data.augment)) return true;
  if (data.synthetic() || data.view.sample == SampleKind::tokens) return false;
  return data.y.ignore_label >= 0 || (data.y.dtype != DType::u8 && data.y.dtype != DType::u16);
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
    case OptimizerName::muon:
      return OptimizerSpec::Kind::muon;
  }
  return OptimizerSpec::Kind::sgd;
}

OptimizerSpec optimizer_spec(const OptimOptions& o) {
  OptimizerSpec s;
  s.kind = optimizer_kind(o.name);
  const bool muon = o.name == OptimizerName::muon;
  s.momentum = float(muon ? o.muon_momentum : o.momentum);
  s.nesterov = muon ? o.muon_nesterov : o.nesterov;
  s.muon_scale = o.muon_scale;
  s.newton_schulz_steps = o.muon_steps;
  s.trust_coefficient = float(o.trust_coefficient);
  s.beta1 = float(o.beta1);
  s.beta2 = float(o.beta2);
  s.epsilon = float(o.epsilon);
  s.clip = float(o.clip);
  s.average = o.ema > 0 ? float(1 - o.ema) : 0;
  return s;
}

std::vector<ParameterGroup> parameter_groups(const RunConfig& c) {
  std::vector<ParameterGroup> out;
  for (const std::string& pattern : c.train.freeze) {
    ParameterGroup& group = out.emplace_back();
    group.key = "train.freeze";
    group.pattern = pattern;
    group.freeze = true;
  }
  for (const std::string& group : c.optim.group) out.push_back(ParameterGroup::parse(group));
  return out;
}

}  // namespace

NetworkSpec network_spec(const World& world, const RunConfig& c, bool training, const DataSets& sets,
                         const Batching& batching, const ModelRecord* trained) {
  const ShardIndex& data = sets.reference();
  NetworkSpec spec;
  spec.model = model_spec(c, data, training ? std::optional(batching.micro_batch) : std::nullopt);
  spec.model.exported = read_exported_network(c.model, trained ? trained->network : "", training);
  spec.batch = {0, data.sample, data.x.dtype, data.y.target, data.y.labels};
  spec.compute = dtype_of(c.run.precision);
  spec.fusion = c.model.fusion;
  spec.recompute = c.train.recompute;
  spec.logits_memory = std::int64_t(c.train.logits_memory);
  spec.optimizer = optimizer_spec(c.optim);
  spec.weight_decay = float(c.optim.weight_decay);
  if (training) spec.groups = parameter_groups(c);  // an evaluation may be of another network
  spec.grad_dtype = world.size() == 1 ? DType::f32 : c.comm.grad_dtype;
  spec.seed = c.run.seed;
  spec.weighted_loss =
      !spec.model.own_losses && (!spec.model.class_weights.empty() || some_labels_may_not_count(c, data));
  spec.sync_batch_norm = c.model.sync_batch_norm;
  spec.ranks = world.size();
  spec.rank = world.rank();
  spec.buckets.elements = std::int64_t(c.comm.bucket_size / sizeof(float));
  if (training && c.optim.zero == 1) spec.shard_optimizer();
  if (batching.train_order) spec.train_rows = batching.train_order->row_counts();
  if (batching.valid_order) spec.eval_rows = batching.valid_order->row_counts();
  return spec;
}

}  // namespace millrace
