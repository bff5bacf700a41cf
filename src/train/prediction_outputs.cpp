#include "train/prediction_outputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "millrace/base/error.hpp"
#include "train/session/metrics.hpp"
#include "train/step/evaluation_sums.hpp"

namespace millrace {
namespace {

using Content = PredictionArray::Content;
using Kind = PredictionOutput::Kind;
using Probabilities = PredictOptions::Probabilities;

Shape without_rows(const Shape& shape) {
  Shape out;
  for (int axis = 1; axis < shape.rank; ++axis) out.dims[std::size_t(out.rank++)] = shape[axis];
  return out;
}

class Outputs {
 public:
  Outputs(const Session& s, const Graph& graph, const PredictOptions& options)
      : s_(s), graph_(graph), options_(options) {}

  std::vector<PredictionOutput> of_losses() {
    std::vector<PredictionOutput> out;
    for (const int loss : graph_.losses()) out.push_back(of_loss(graph_.nodes[std::size_t(loss)]));
    const bool ranked = std::ranges::any_of(out, [](const PredictionOutput& o) {
      return std::ranges::count(o.arrays, Content::top_classes, &PredictionArray::content) > 0;
    });
    if (options_.top_k > 0 && !ranked)
      fail(Exit::config, "command line: --top-k: the network does not predict one class a sample. remove it");
    const bool on = options_.probabilities == Probabilities::on;
    if (on && std::ranges::none_of(out, [](const PredictionOutput& o) { return o.kind != Kind::regression; }))
      fail(Exit::config, "command line: --probabilities: the network predicts no classes. remove it");
    return out;
  }

  PredictionOutput of_layer(const std::string& name) {
    if (options_.top_k > 0 || options_.probabilities != Probabilities::automatic)
      fail(Exit::config, "command line: --features writes the results of a layer. remove --top-k and --probabilities");
    PredictionOutput out{.kind = Kind::features};
    for (const Node& node : graph_.nodes)
      if (is_layer(node) && node.name == name) out.value = node.dst;
    if (out.value < 0) refuse_layer(name);
    out.result = without_rows(graph_.values[std::size_t(out.value)].shape);
    out.arrays = {{Content::values, "features", DType::f32, out.result, {}, false}};
    return out;
  }

 private:
  // Other nodes are losses, or compute what these compare with.
  bool is_layer(const Node& node) const {
    if (node.dst < 0 || std::ranges::count(node.src, Graph::y) > 0) return false;
    const Value& result = graph_.values[std::size_t(node.dst)];
    return result.dtype == graph_.dtype && result.shape.rank > 0 && result.shape[0] == graph_.rows;
  }
  [[noreturn]] void refuse_layer(const std::string& name) const {
    constexpr std::size_t most = 8;
    std::vector<std::string> layers;
    for (const Node& node : graph_.nodes)
      if (is_layer(node)) layers.push_back(node.name);
    std::ranges::stable_sort(layers, {}, [&](const std::string& layer) { return edit_distance(name, layer); });
    const bool all = layers.size() <= most;
    layers.resize(std::min(most, layers.size()));
    fail(Exit::config, "command line: --features: no layer is called '{}'. {} {}{}", name,
         all ? "there are" : "the nearest are", fmt::join(layers, ", "),
         all ? "" : "; millrace inspect CHECKPOINT lists all");
  }

  PredictionOutput of_loss(const Node& loss) {
    PredictionOutput out{.value = loss.src[0]};
    out.result = without_rows(graph_.values[std::size_t(out.value)].shape);
    prefix_ = graph_.losses().size() > 1 ? loss.name + "/" : "";
    switch (task_of(loss.spec)) {
      case Task::binary:
        add_binary(out);
        break;
      case Task::regression:
        add_regression(out, first_target_of(graph_, loss));
        break;
      default:
        add_classes(out);
    }
    return out;
  }

  void add(PredictionOutput& out, Content content, const char* name, DType type, const Shape& row) const {
    out.arrays.push_back({content, prefix_ + name, type, row, {}, true});
  }

  void add_classes(PredictionOutput& out) {
    out.kind = Kind::classes;
    out.classes = out.result[-1];
    Shape positions = out.result;
    --positions.rank;
    const bool maps = positions.rank > 0;
    bool all = options_.probabilities == Probabilities::on;
    if (!maps && options_.top_k > 0) {
      require_top(out.classes);
      add(out, Content::top_classes, "top_classes", DType::i32, {options_.top_k});
      add(out, Content::top_probabilities, "top_probabilities", DType::f32, {options_.top_k});
    } else {
      add(out, Content::classes, maps ? "mask" : "prediction", maps && out.classes <= 256 ? DType::u8 : DType::i32,
          positions);
      all = all || (!maps && options_.probabilities == Probabilities::automatic);
    }
    if (all) add(out, Content::probabilities, "probabilities", DType::f32, out.result);
    name_classes(out, out.classes);
    for (PredictionArray& array : out.arrays) array.tabular = !maps;
  }

  void require_top(std::int64_t classes) const {
    if (options_.top_k > classes)
      fail(Exit::config, "command line: --top-k: {} of {} classes. lower it", options_.top_k, classes);
  }

  // Names belong to the labels of data.y, and so to the only loss.
  void name_classes(PredictionOutput& out, std::int64_t classes) const {
    const auto& names = s_.data.reference().classes.names;
    if (!prefix_.empty() || std::int64_t(names.size()) > classes) return;
    for (PredictionArray& array : out.arrays)
      if (array.content != Content::top_probabilities) array.class_names = names;
  }

  // As the targets are stored; one value a sample has no axis.
  Shape target_row(const PredictionOutput& out) const {
    const Shape& target = s_.spec.batch.target;
    if (out.result.count() == 1) return {};
    return prefix_.empty() && target.count() == out.result.count() ? target : out.result;
  }

  void add_binary(PredictionOutput& out) {
    out.kind = Kind::binary;
    const Shape row = target_row(out);
    add(out, Content::classes, "prediction", DType::i32, row);
    if (s_.spec.batch.labels) name_classes(out, 2);  // 0 and 1
    if (options_.probabilities != Probabilities::off)
      add(out, Content::probabilities, "probabilities", DType::f32, row);
  }

  // data.normalize_targets; other targets are learned as they are stored. first_target: of this loss in a row of y.
  void set_unit(PredictionOutput& out, std::size_t first_target) const {
    const ValueConversion& values = s_.data.reference().values;
    if (values.target_mean.empty()) return;
    const bool each = values.target_mean.size() > 1;
    const auto first = std::ptrdiff_t(each ? first_target : 0), last = first + (each ? out.result.count() : 1);
    out.unit.mean.assign(values.target_mean.begin() + first, values.target_mean.begin() + last);
    out.unit.std.assign(values.target_std.begin() + first, values.target_std.begin() + last);
  }

  void add_regression(PredictionOutput& out, std::size_t first_target) {
    out.kind = Kind::regression;
    add(out, Content::values, "prediction", DType::f32, target_row(out));
    if (s_.data.valid.view.sample != SampleKind::pair) return set_unit(out, first_target);
    const ValueConversion& values = s_.data.valid.values;
    out.unit.transform = values.transform;
    out.unit.scale = values.scale;
    out.unit.offset = values.offset;
    if (!values.normalize_targets) return;
    out.unit.mean = values.mean;
    out.unit.std = values.std;
  }

  const Session& s_;
  const Graph& graph_;
  const PredictOptions& options_;
  std::string prefix_;  // of the names of the data sets of a loss
};

template <class T>
void find_classes(std::span<const float> logits, std::size_t classes, T* to) {
  for (std::size_t at = 0; at < logits.size(); at += classes) {
    const auto row = logits.subspan(at, classes);
    *to++ = T(std::ranges::max_element(row) - row.begin());
  }
}

void softmax(std::span<const float> logits, float* to) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (std::size_t c = 0; c < logits.size(); ++c) {
    to[c] = std::exp(logits[c] - largest);
    sum += double(to[c]);
  }
  for (std::size_t c = 0; c < logits.size(); ++c) to[c] = float(double(to[c]) / sum);
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

void find_top(std::span<const float> results, std::size_t classes, std::size_t k, std::int32_t* numbers,
              float* probabilities) {
  std::vector<std::int32_t> order(classes);
  std::vector<float> all(classes);
  for (std::size_t at = 0; at < results.size(); at += classes) {
    const auto logits = results.subspan(at, classes);
    softmax(logits, all.data());
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](std::int32_t a, std::int32_t b) {
      const float first = logits[std::size_t(a)], second = logits[std::size_t(b)];
      return first != second ? first > second : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(k), order.end(), before);
    for (std::size_t i = 0; i < k; ++i) {
      *numbers++ = order[i];
      *probabilities++ = all[std::size_t(order[i])];
    }
  }
}

}  // namespace

float TargetUnit::stored(float result, std::size_t channel) const {
  double value = double(result);
  if (!mean.empty()) value = value * std[channel] + mean[channel];
  if (transform == Transform::log1p) value = std::expm1(value);
  return float((value - offset) / scale);
}

std::int64_t PredictionOutput::fill(std::span<const float> results, std::span<char* const> to) const {
  const std::size_t per_position = std::size_t(classes);
  for (std::size_t a = 0; a < arrays.size(); ++a) {
    const PredictionArray& array = arrays[a];
    auto* const numbers = reinterpret_cast<std::int32_t*>(to[a]);
    auto* const values = reinterpret_cast<float*>(to[a]);
    switch (array.content) {
      case Content::classes:
        if (kind == Kind::binary)
          std::ranges::transform(results, numbers, [](float x) { return std::int32_t(x >= 0); });
        else if (array.dtype == DType::u8)
          find_classes(results, per_position, reinterpret_cast<std::uint8_t*>(to[a]));
        else
          find_classes(results, per_position, numbers);
        break;
      case Content::probabilities:
        if (kind == Kind::binary) std::ranges::transform(results, values, sigmoid);
        for (std::size_t at = 0; kind != Kind::binary && at < results.size(); at += per_position)
          softmax(results.subspan(at, per_position), values + at);
        break;
      case Content::top_classes:  // the next data set has their probabilities
        find_top(results, per_position, std::size_t(array.values()), numbers, reinterpret_cast<float*>(to[a + 1]));
        break;
      case Content::top_probabilities:
        break;
      case Content::values: {
        const std::size_t channels = std::max<std::size_t>(1, unit.mean.size());
        for (std::size_t i = 0; i < results.size(); ++i)
          values[i] = kind == Kind::regression ? unit.stored(results[i], i % channels) : results[i];
        break;
      }
    }
  }
  return std::ranges::count_if(results, [](float x) { return !std::isfinite(x); });
}

PredictionArray sample_numbers() { return {PredictionArray::Content::values, "sample", DType::i64, {}, {}, true}; }

std::vector<PredictionOutput> prediction_outputs(const Session& s, const Graph& graph, const PredictOptions& options) {
  Outputs outputs(s, graph, options);
  if (options.features.empty()) return outputs.of_losses();
  return {outputs.of_layer(options.features)};
}

}  // namespace millrace
