#include "onnx/assembler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

std::int64_t product(const OnnxShape& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t(1), std::multiplies<>());
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The elements of a tensor with its axes in another order.
std::string permuted(const std::vector<float>& values, const OnnxShape& extents, const OnnxShape& axes) {
  OnnxShape strides(extents.size(), 1);
  for (std::size_t a = extents.size(); a-- > 1;) strides[a - 1] = strides[a] * extents[a];
  std::string out(values.size() * sizeof(float), '\0');
  auto* to = reinterpret_cast<float*>(out.data());
  OnnxShape at(axes.size());
  std::int64_t from = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    to[i] = values[std::size_t(from)];
    for (std::size_t a = axes.size(); a-- > 0;) {
      const auto axis = std::size_t(axes[a]);
      from += strides[axis];
      if (++at[a] < extents[axis]) break;
      from -= extents[axis] * strides[axis];
      at[a] = 0;
    }
  }
  return out;
}

}  // namespace

int axis_in(Order order, int axis, int rank) {
  if (order == Order::last || axis == 0) return axis;
  return axis == rank - 1 ? 1 : axis + 1;
}

OnnxShape extents_in(Order order, const Shape& shape) {
  OnnxShape out = shape.extents();
  if (order == Order::first && out.size() > 2) std::rotate(out.begin() + 1, out.end() - 1, out.end());
  out[0] = 0;
  return out;
}

Assembler::Assembler(const OnnxNetwork& network, const OnnxWeights& weights) : network_(network), weights_(weights) {
  uses_.resize(graph().parameters.size());
  for (const Node& node : graph().nodes)
    for (const int parameter : node.weight) ++uses_[std::size_t(parameter)];
}

std::string Assembler::unique(const std::string& name) {
  std::string out = name;
  for (int number = 2; !names_.insert(out).second; ++number) out = fmt::format("{}.{}", name, number);
  return out;
}

void Assembler::set(int value, const std::string& name, Order order) {
  values_[value] = {name, shape(value).rank > 2 ? order : Order::last};
}

std::string Assembler::get(int value, Order order) {
  Kept& kept = values_.at(value);
  const int rank = shape(value).rank;
  if (kept.order == order || rank <= 2) return kept.name;
  if (kept.other.empty()) {
    OnnxShape axes(static_cast<std::size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
    if (order == Order::first)
      std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
    else
      std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
    kept.other = transpose(kept.name + (order == Order::first ? ".channels_first" : ".channels_last"), kept.name, axes);
  }
  return kept.other;
}

std::string Assembler::add(const std::string& type, const std::string& name, std::vector<std::string> inputs,
                           std::vector<OnnxAttribute> attributes) {
  const std::string result = unique(name);
  model_.nodes.push_back({type, result, std::move(inputs), {result}, std::move(attributes)});
  return result;
}

void Assembler::add(const std::string& type, std::vector<std::string> inputs, std::vector<std::string>& results,
                    std::vector<OnnxAttribute> attributes) {
  for (std::string& result : results)
    if (!result.empty()) result = unique(result);
  model_.nodes.push_back({type, results[0], std::move(inputs), results, std::move(attributes)});
}

std::vector<std::string> Assembler::split(const std::string& name, const std::string& src, std::int64_t axis,
                                          const OnnxShape& parts) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < parts.size(); ++i) out.push_back(unique(fmt::format("{}.{}", name, i)));
  model_.nodes.push_back({"Split", out[0], {src, integers(parts)}, out, {{"axis", axis}}});
  return out;
}

std::string Assembler::reshape(const std::string& name, const std::string& src, OnnxShape extents) {
  return add("Reshape", name, {src, integers(extents)});
}

std::string Assembler::transpose(const std::string& name, const std::string& src, OnnxShape axes) {
  return add("Transpose", name, {src}, {{"perm", std::move(axes)}});
}

std::string Assembler::add_input(const std::string& name, OnnxType type, OnnxShape shape) {
  shape[0] = -1;
  model_.inputs.push_back({unique(name), type, std::move(shape)});
  return model_.inputs.back().name;
}

// The node that computes the value gets the name of the output. If there is none, or if the value is an output
// already, another node copies it.
void Assembler::add_output(const std::string& name, const std::string& value, OnnxShape shape) {
  shape[0] = -1;
  const bool computed = std::ranges::any_of(
      model_.nodes, [&](const OnnxNode& node) { return std::ranges::count(node.outputs, value) > 0; });
  const bool taken = std::ranges::count(model_.outputs, value, &OnnxValue::name) > 0;
  std::string result = value;
  if (!computed || taken) {
    result = add("Identity", name, {value});
  } else if (value != name) {
    result = unique(name);
    for (OnnxNode& node : model_.nodes) {
      std::ranges::replace(node.inputs, value, result);
      std::ranges::replace(node.outputs, value, result);
    }
  }
  for (auto& [number, kept] : values_)
    for (std::string* known : {&kept.name, &kept.other})
      if (computed && !taken && *known == value) *known = result;
  model_.outputs.push_back({result, OnnxType::f32, std::move(shape)});
}

std::string Assembler::constant(const std::vector<float>& values, const OnnxShape& shape) {
  std::string bytes = bytes_of(values);
  std::string& name = constants_[{shape, bytes}];
  if (!name.empty()) return name;
  name = unique(values.size() == 1 && shape.empty() ? fmt::format("constant.{:g}", values[0]) : "constant");
  model_.constants.push_back({name, OnnxType::f32, shape, std::move(bytes)});
  return name;
}

std::string Assembler::integers(const OnnxShape& values) {
  std::string& name = constants_[{values, "integers"}];
  if (!name.empty()) return name;
  constexpr std::size_t most_in_name = 8;
  name = unique(values.size() > most_in_name ? "integers" : fmt::format("integers.{}", fmt::join(values, "_")));
  model_.constants.push_back({name, OnnxType::i64, {std::int64_t(values.size())}, bytes_of(values)});
  return name;
}

std::string Assembler::integer(std::int64_t value) {
  std::string& name = constants_[{{value}, "integer"}];
  if (!name.empty()) return name;
  name = unique(fmt::format("integer.{}", value));
  model_.constants.push_back({name, OnnxType::i64, {}, bytes_of(OnnxShape{value})});
  return name;
}

std::string Assembler::flags(const std::string& name, const OnnxShape& shape, const std::string& bytes) {
  std::string& known = constants_[{shape, name}];
  if (!known.empty()) return known;
  known = unique(name);
  model_.constants.push_back({known, OnnxType::boolean, shape, bytes});
  return known;
}

std::string Assembler::weight(int parameter, const Arrangement& arrangement) {
  std::string& name = parameters_[{parameter, arrangement}];
  if (!name.empty()) return name;
  const Parameter& p = graph().parameters[std::size_t(parameter)];
  std::vector<float> values(std::size_t(p.shape.count()));
  weights_.parameter(parameter, values);
  name = unique(p.name);
  OnnxShape shape = arrangement.view.empty() ? p.shape.extents() : arrangement.view;
  MR_CHECK(product(shape) == p.shape.count(), "{} has another number of elements", p.name);
  std::string bytes;
  if (arrangement.axes.empty()) {
    bytes = bytes_of(values);
    const std::string stored = bytes;
    const std::size_t size = arrangement.parts.empty() ? 0 : bytes.size() / arrangement.parts.size();
    for (std::size_t part = 0; part < arrangement.parts.size(); ++part)
      bytes.replace(part * size, size, stored, std::size_t(arrangement.parts[part]) * size, size);
  } else {
    bytes = permuted(values, shape, arrangement.axes);
    const OnnxShape view = shape;
    std::ranges::transform(arrangement.axes, shape.begin(), [&](std::int64_t axis) { return view[std::size_t(axis)]; });
  }
  if (!arrangement.shape.empty()) shape = arrangement.shape;
  model_.constants.push_back({name, OnnxType::f32, shape, std::move(bytes)});
  return name;
}

std::string Assembler::channel_weight(int parameter, int rank, Order order) {
  const std::int64_t channels = graph().parameters[std::size_t(parameter)].shape.count();
  if (order == Order::last || rank <= 2) return weight(parameter);
  OnnxShape shape(std::size_t(rank) - 1, 1);
  shape[0] = channels;
  return weight(parameter, {.shape = shape});
}

std::pair<std::string, std::string> Assembler::statistics(int number) {
  const RunningStats& stats = graph().stats[std::size_t(number)];
  std::vector<float> values(std::size_t(2 * stats.channels));
  weights_.statistics(number, values);
  const auto half = values.begin() + stats.channels;
  const std::string mean = unique(stats.name + ".running_mean"), variance = unique(stats.name + ".running_var");
  model_.constants.push_back({mean, OnnxType::f32, {stats.channels}, bytes_of(std::vector(values.begin(), half))});
  model_.constants.push_back({variance, OnnxType::f32, {stats.channels}, bytes_of(std::vector(half, values.end()))});
  return {mean, variance};
}

void Assembler::refuse(const Node& node, const std::string& why) {
  refused_.push_back(fmt::format("'{}' ({}: {})", node.name, name_of(node.spec), why));
}

OnnxModel Assembler::finish() {
  if (!refused_.empty())
    fail(Exit::config, "--format onnx: layers that have no form in ONNX: {}. use --format safetensors",
         fmt::join(refused_, ", "));
  return std::move(model_);
}

}  // namespace millrace
