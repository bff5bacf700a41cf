#include <algorithm>
#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/onnx/onnx_export.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "millrace/telemetry/json_text.hpp"
#include "train/checkpoint/export_model.hpp"

namespace millrace {
namespace {

bool is_regression(const Spec& loss) {
  const auto* pointwise = std::get_if<PointwiseLossSpec>(&loss);
  return pointwise && !pointwise->binary();
}

// The inverse of what ValueConversion does with the targets of pairs: (f(r * std + mean) - offset) / scale.
void undo_conversion_of_pairs(const ValueConversion& values, OnnxOutput& out) {
  const bool normalised = values.normalize_targets && !values.mean.empty();
  out.expm1 = values.transform == Transform::log1p;
  double scale = 1 / values.scale, lift = -values.offset / values.scale;
  if (out.expm1) {
    out.gain = float(scale);
    out.lift = float(lift);
    scale = 1;
    lift = 0;
  }
  for (std::size_t c = 0; c < (normalised ? values.mean.size() : 1); ++c) {
    out.factor.push_back(float((normalised ? values.std[c] : 1) * scale));
    out.shift.push_back(float((normalised ? values.mean[c] : 0) * scale + lift));
  }
}

// The inverse of data.normalize_targets. first: the first target of the loss in a row of y.
void undo_normalization(const ValueConversion& values, std::size_t first, std::int64_t count, OnnxOutput& out) {
  if (values.target_mean.empty()) return;
  const bool each = values.target_mean.size() > 1;
  for (std::size_t c = 0; c < (each ? std::size_t(count) : 1); ++c) {
    out.factor.push_back(float(values.target_std.at(each ? first + c : 0)));
    out.shift.push_back(float(values.target_mean.at(each ? first + c : 0)));
  }
}

std::size_t first_target(const Graph& graph, const Node& loss) {
  const int from = graph.producer(loss.src[1]);
  const auto* part = from < 0 ? nullptr : std::get_if<SliceSpec>(&graph.nodes[std::size_t(from)].spec);
  return part ? std::size_t(part->begin) : 0;
}

// What the losses compare with the labels or targets.
std::vector<OnnxOutput> network_outputs(const Graph& graph, const NetworkSpec& spec, const ModelRecord& record,
                                        bool pairs) {
  std::vector<OnnxOutput> out;
  const std::vector<int> losses = graph.losses();
  for (const int number : losses) {
    const Node& loss = graph.nodes[std::size_t(number)];
    const bool regression = is_regression(loss.spec);
    OnnxOutput& output = out.emplace_back();
    output.value = loss.src[0];
    output.name = (losses.size() > 1 ? loss.name + "/" : "") + (regression ? "prediction" : "logits");
    if (!regression) continue;
    const std::int64_t values = graph.values[std::size_t(output.value)].shape.row_count();
    if (!pairs) {
      undo_normalization(record.values, first_target(graph, loss), values, output);
      continue;
    }
    undo_conversion_of_pairs(record.values, output);
    const Shape& target = spec.batch.target;
    if (losses.size() == 1 && values > 1 && target.count() == values) output.row = target;
  }
  return out;
}

// Whether a sample of these extents has the channels first that the archive takes. Images have, also where it cannot
// be told.
bool takes_channels_first(const pt2::ExportedProgram& program, const Graph& graph) {
  const auto input =
      std::ranges::find_if(graph.nodes, [](const Node& n) { return std::holds_alternative<InputSpec>(n.spec); });
  if (input == graph.nodes.end()) return true;
  std::vector<std::int64_t> extents = graph.values[std::size_t(input->dst)].shape.extents();
  const pt2::UserInput& user = program.user_inputs.at(0);
  const auto matches = [&] {
    for (std::size_t axis = 1; axis < extents.size(); ++axis)
      if (!user.dynamic[axis] && user.sizes[axis] != extents[axis]) return false;
    return true;
  };
  if (user.sizes.size() != extents.size()) return true;
  const bool as_stored = matches();
  std::rotate(extents.begin() + 1, extents.end() - 1, extents.end());
  return matches() || !as_stored;
}

}  // namespace

void export_onnx(const CheckpointModel& model, const NetworkSpec& spec, bool pairs, const std::filesystem::path& out) {
  require_onnx();
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const auto source = open_model_weights(model, spec, graph);
  const OnnxWeights weights{[&](int number, std::span<float> to) { source->read_parameter(number, to); },
                            [&](int number, std::span<float> to) { source->read_statistics(number, to); }};
  OnnxNetwork network{graph, network_outputs(graph, spec, *model.record, pairs)};
  if (spec.model.exported) network.channels_first = takes_channels_first(*spec.model.exported, graph);
  OnnxModel file = make_onnx_model(network, weights);
  CheckpointModel described = model;
  described.record->network.clear();  // the file is the network
  file.metadata = export_metadata(described);
  const auto& names = model.record->classes.names;
  if (!names.empty()) file.metadata["classes"] = json_text(nlohmann::json(names));
  write_onnx(out, std::move(file));
}

}  // namespace millrace
