#include <fmt/format.h>

#include <bit>

#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

std::string numbers(const std::vector<float>& values) { return fmt::format("{:.9g}", fmt::join(values, " ")); }
std::string numbers(const std::vector<std::int64_t>& values) { return fmt::format("{}", fmt::join(values, " ")); }

Shape of_one_row(Shape shape) {
  shape.dims[0] = 1;
  return shape;
}

std::string text_of(const Window& w) {
  const auto axes = [&](const std::array<std::int64_t, 3>& a) {
    return fmt::format("{}", fmt::join(a.begin(), a.begin() + w.rank, "x"));
  };
  return fmt::format("{} stride={} pad={} dilation={}", axes(w.kernel), axes(w.stride), axes(w.pad), axes(w.dilation));
}

std::string text_of(const ConvSpec& s) {
  return fmt::format("{} {} groups={} bias={}", s.out_channels, text_of(s.window), s.groups, s.bias ? "on" : "off");
}
std::string text_of(const LinearSpec& s) {
  return fmt::format("{} bias={}{}", s.out_features, s.bias ? "on" : "off",
                     s.activation == Activation::none ? "" : fmt::format(" {}", name_of(s.activation)));
}
std::string text_of(const BatchNormSpec& s) { return fmt::format("epsilon={:g}", s.epsilon); }
std::string text_of(const PoolSpec& s) {
  if (s.kind == PoolSpec::Kind::global) return "global average";
  return fmt::format("{} {}{}", s.kind == PoolSpec::Kind::max ? "max" : "average", text_of(s.window),
                     s.ceil_mode ? " ceil_mode" : "");
}
std::string text_of(const ActivationSpec& s) { return name_of(s.kind); }
std::string text_of(const AddSpec&) { return ""; }
std::string text_of(const DropoutSpec&) { return ""; }
std::string text_of(const EmbeddingSpec& s) { return fmt::format("{} vocabulary={}", s.width, s.vocabulary); }
std::string text_of(const LayerNormSpec& s) {
  return fmt::format("epsilon={:g}{}{}", s.epsilon, s.bias ? "" : " bias=off", s.weight ? "" : " weight=off");
}
std::string text_of(const PositionEmbeddingSpec& s) { return s.class_token ? "class_token" : ""; }
std::string text_of(const GatedSpec& s) { return name_of(s.kind); }
std::string text_of(const ScaleSpec&) { return ""; }
std::string text_of(const RotarySpec& s) {
  return fmt::format("heads={} key_heads={} theta={:g}", s.heads, s.key_heads, s.theta);
}
std::string text_of(const ConcatSpec& s) { return fmt::format("axis={}", s.axis); }
std::string text_of(const SliceSpec& s) { return fmt::format("axis={} {}+{}", s.axis, s.begin, s.count); }
std::string text_of(const UpsampleSpec& s) {
  return fmt::format("{} {}", s.kind == UpsampleSpec::Kind::linear ? "linear" : "nearest", s.factor);
}
std::string text_of(const TransposedConvSpec& s) {
  return fmt::format("{} {} output_pad={} groups={} bias={}", s.out_channels, text_of(s.window), s.output_pad, s.groups,
                     s.bias ? "on" : "off");
}
std::string text_of(const GroupNormSpec& s) {
  return fmt::format("groups={} epsilon={:g}{}", s.groups, s.epsilon, s.affine ? "" : " affine=off");
}
std::string text_of(const ScaleBySpec&) { return ""; }
std::string text_of(const ReshapeSpec&) { return ""; }
std::string text_of(const AttentionSpec& s) {
  return fmt::format("heads={} key_heads={}{}", s.heads, s.key_heads, s.causal ? " causal" : "");
}
std::string text_of(const MoveLabelsSpec&) { return ""; }
std::string text_of(const MixSpec&) { return ""; }
std::string text_of(const DocumentsSpec& s) {
  if (s.kind == DocumentsSpec::Kind::begins) return fmt::format("separator={}", s.separator);
  if (s.kind == DocumentsSpec::Kind::last) return fmt::format("last separator={}", s.separator);
  return fmt::format("counts separator={} first={}", s.separator, s.first);
}
std::string text_of(const CrossEntropySpec&) { return ""; }
std::string text_of(const PointwiseLossSpec&) { return ""; }
// Constants are told apart by a hash (FNV-1a).
template <class T>
std::string text_of(const Table<T>& table) {
  if (table.size() == 1) return fmt::format("{:.9g}", double(table[0]));
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const T value : table.values())
    for (const std::uint32_t bits = std::bit_cast<std::uint32_t>(value); const int shift : {0, 8, 16, 24})
      hash = (hash ^ (bits >> shift & 0xff)) * 0x100000001b3;
  return fmt::format("{:016x} ({})", hash, table.size());
}
std::string text_of(const GatherSpec& s) { return fmt::format("size={} index={}", s.size, text_of(s.index)); }
std::string text_of(const AffineSpec& s) {
  return fmt::format("scale={} offset={}{}", text_of(s.scale), text_of(s.offset),
                     s.inner == 1 ? "" : fmt::format(" inner={}", s.inner));
}
std::string text_of(const PowerSpec& s) { return fmt::format("{:.9g}", s.exponent); }
std::string text_of(const PreluSpec& s) {
  return s.slopes == 0 ? fmt::format("slope={:.9g}", s.slope) : fmt::format("slopes={}", s.slopes);
}
std::string text_of(const IndexedBiasSpec& s) { return fmt::format("{} index={}", s.entries, text_of(s.index)); }
std::string text_of(const SoftmaxSpec&) { return ""; }
std::string text_of(const BatchedMatmulSpec& s) {
  return fmt::format("{}x{}x{}{}{}", s.m, s.n, s.k, s.transpose_a ? " transpose_a" : "",
                     s.transpose_b ? " transpose_b" : "");
}
std::string text_of(const RecurrentSpec& s) {
  return fmt::format("{} bias={}{}{}{}", s.units, s.bias ? "on" : "off", s.reverse ? " reverse" : "",
                     s.kind == RecurrentSpec::Kind::rnn_relu ? " relu" : "", s.cell_state ? " cell_state" : "");
}
std::string text_of(const LinearCrossEntropySpec&) { return ""; }  // a rewrite makes it
std::string text_of(const InputSpec& s) {
  std::string out;
  const auto add = [&](const char* name, const auto& values) {
    if (!values.empty()) out += fmt::format("{}{}={}", out.empty() ? "" : ", ", name, numbers(values));
  };
  add("channels", s.channels);
  add("subvolume", s.subvolume);
  if (s.channel_scale.empty())
    add("scale", std::vector<float>{s.scale});
  else
    add("scale", s.channel_scale);
  if (s.channel_offset.empty())
    add("offset", std::vector<float>{s.offset});
  else
    add("offset", s.channel_offset);
  if (s.transform != Transform::none) out += fmt::format(", {}", name_of(s.transform));
  add("mean", s.mean);
  add("std", s.std);
  return out;
}

// The name of the weights of a linear layer if they are those of another layer.
std::string shared_weights(const Graph& graph, const Node& node) {
  if (!std::holds_alternative<LinearSpec>(node.spec)) return "";
  const std::string& name = graph.parameters[std::size_t(node.weight[0])].name;
  return name == node.name + ".weight" ? "" : name;
}

}  // namespace

std::vector<std::string> describe_function(const Graph& graph) {
  std::vector<std::string> names;  // by value
  for (const Value& v : graph.values) names.push_back(v.name);
  std::vector<std::string> out;
  for (const Node& node : graph.nodes) {
    if (std::holds_alternative<DropoutSpec>(node.spec) || std::holds_alternative<MoveLabelsSpec>(node.spec) ||
        std::holds_alternative<MixSpec>(node.spec)) {
      names[std::size_t(node.dst)] = names[std::size_t(node.src[0])];
      continue;
    }
    std::string sources;
    for (const int src : node.src)
      if (src != Graph::ids) sources += (sources.empty() ? "" : ", ") + names[std::size_t(src)];
    const std::string settings = std::visit([](const auto& spec) { return text_of(spec); }, node.spec);
    const Shape shape = of_one_row(graph.values[std::size_t(node.dst < 0 ? node.src[0] : node.dst)].shape);
    std::string line = fmt::format("{} = {}({}){}{} -> {}", node.name, name_of(node.spec), sources,
                                   settings.empty() ? "" : " ", settings, shape.str());
    if (const std::string shared = shared_weights(graph, node); !shared.empty()) line += " weights=" + shared;
    out.push_back(std::move(line));
  }
  return out;
}

}  // namespace millrace
