#include "millrace/model/layout.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "millrace/base/files.hpp"
#include "millrace/base/rng.hpp"

namespace millrace {
namespace {

std::int64_t padded(std::int64_t count) {
  return (count + ParameterLayout::padding - 1) / ParameterLayout::padding * ParameterLayout::padding;
}

void fill(const Parameter& p, std::uint64_t seed, float* out) {
  const std::int64_t count = p.shape.count();
  if (p.init == Parameter::Init::zero || p.init == Parameter::Init::one) {
    std::fill(out, out + count, p.init == Parameter::Init::one ? 1.0f : 0.0f);
    return;
  }
  if (p.init == Parameter::Init::constant) {
    std::fill(out, out + count, float(p.init_value));
    return;
  }
  const float bound = 1.0f / std::sqrt(float(p.fan_in));
  const std::uint64_t key = rng_key(seed, RngPurpose::init), stream = crc32(p.name.data(), p.name.size());
  if (p.init == Parameter::Init::normal) {  // Box and Muller 1958: two pairs from four uniform numbers
    for (std::int64_t i = 0; i < count; i += 4) {
      const Random4 r = philox(key, stream, std::uint64_t(i / 4));
      for (std::int64_t k = i; k < std::min(i + 4, count); ++k) {
        const std::int64_t pair = (k - i) / 2 * 2;
        const double radius = std::sqrt(-2 * std::log(1 - double(uniform01(r.v[pair])))),
                     angle = 2 * std::numbers::pi * double(uniform01(r.v[pair + 1]));
        out[k] = float(p.init_value * radius * (k % 2 == 0 ? std::cos(angle) : std::sin(angle)));
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < count; i += 4) {
    const Random4 r = philox(key, stream, std::uint64_t(i / 4));
    for (std::int64_t k = i; k < std::min(i + 4, count); ++k) out[k] = (2 * uniform01(r.v[k - i]) - 1) * bound;
  }
}

}  // namespace

ParameterLayout::ParameterLayout(const Graph& graph) {
  parameters.resize(graph.parameters.size());
  for (const bool f32 : {true, false}) {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (f32 != (graph.dtype_of(graph.parameters[p]) == DType::f32)) continue;
      const std::int64_t n = graph.parameters[p].shape.count();
      parameters[p] = {count, n, count + padded(n)};
      count += padded(n);
    }
    if (f32) f32_count = count;
  }
  for (const auto& s : graph.stats) {
    stats.push_back({stats_count, 2 * s.channels, stats_count + padded(2 * s.channels)});
    stats_count += padded(2 * s.channels);
  }
}

std::vector<ParameterRule> default_rules(const Graph& graph, float weight_decay) {
  std::vector<ParameterRule> rules;
  for (const Parameter& p : graph.parameters) rules.push_back({.weight_decay = p.matrix ? weight_decay : 0});
  return rules;
}

void add_matrices(const Graph& graph, std::vector<ParameterRule>& rules) {
  std::vector<bool> embedding(rules.size());
  for (const Node& node : graph.nodes)
    if (std::holds_alternative<EmbeddingSpec>(node.spec) || std::holds_alternative<PositionEmbeddingSpec>(node.spec))
      for (const int p : node.weight) embedding[std::size_t(p)] = true;
  for (std::size_t p = 0; p < rules.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    if (!parameter.matrix || embedding[p]) continue;
    rules[p].rows = parameter.shape[0];
    rules[p].columns = parameter.shape.row_count();
  }
}

std::vector<OptimizerSegment> ParameterLayout::segments(const std::vector<ParameterRule>& rules,
                                                        const OptimizerSpec& optimizer) const {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::ranges::sort(order, {}, [&](std::size_t p) { return parameters[p].begin; });
  std::vector<OptimizerSegment> out;
  const ParameterRule* previous = nullptr;  // of the parameter before, if that is not frozen
  for (const std::size_t p : order) {
    const ParameterRule& rule = rules[p];
    const auto& slot = parameters[p];
    const bool apart = rule.rows > 0 || (optimizer.by_segment() && rule.weight_decay != 0);
    if (!rule.frozen) {
      if (previous && *previous == rule && !apart)
        out.back().count = slot.end - out.back().begin;
      else
        out.push_back({slot.begin, rule.rows > 0 ? slot.count : slot.end - slot.begin, rule.weight_decay,
                       rule.lr_factor, rule.rows, rule.columns});
    }
    previous = rule.frozen ? nullptr : &rule;
  }
  return out;
}

void ParameterLayout::initialise(const Graph& graph, std::uint64_t seed, float* master, float* running) const {
  std::fill(master, master + count, 0.0f);
  for (std::size_t p = 0; p < parameters.size(); ++p) fill(graph.parameters[p], seed, master + parameters[p].begin);
  std::fill(running, running + stats_count, 0.0f);
  for (const auto& s : stats)
    std::fill(running + s.begin + s.count / 2, running + s.begin + s.count, 1.0f);  // variances
}

}  // namespace millrace
