#include "train/overflow.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/train/session/session.hpp"

namespace millrace {

std::vector<double> scan_gradient(const ParameterLayout& layout, std::span<const float> gradient,
                                  std::span<const OptimizerShard> own) {
  const OptimizerShard whole{0, std::int64_t(gradient.size())};
  if (own.empty()) own = {&whole, 1};
  const std::size_t count = layout.parameters.size();
  std::vector<double> survey(2 * count, -1);
  for (std::size_t p = 0; p < count; ++p) {
    const auto& slot = layout.parameters[p];
    double non_finite = 0, largest = -1;
    for (const OptimizerShard& slice : own) {
      const std::int64_t end = std::min(slot.begin + slot.count, slice.begin + slice.count);
      for (std::int64_t i = std::max(slot.begin, slice.begin); i < end; ++i) {
        const float g = std::abs(gradient[std::size_t(i)]);
        if (std::isfinite(g))
          largest = std::max(largest, double(g));
        else
          non_finite = 1;
      }
    }
    survey[p] = non_finite;
    survey[count + p] = largest;
  }
  return survey;
}

std::string describe_gradient(const Graph& graph, std::span<const double> survey) {
  const std::size_t count = survey.size() / 2;
  const std::string* first = nullptr;
  const std::string* at_largest = nullptr;
  double largest = 0;
  int non_finite = 0;
  // From the last parameter to the first, because the backward pass spreads values that are not finite in this order.
  for (std::size_t p = count; p-- > 0;) {
    if (survey[count + p] > largest) {
      largest = survey[count + p];
      at_largest = &graph.parameters[p].name;
    }
    if (survey[p] == 0) continue;
    ++non_finite;
    if (!first) first = &graph.parameters[p].name;
  }
  const std::string rest =
      at_largest ? fmt::format("; the largest finite value is {:.2g}, in {}", largest, *at_largest) : "";
  if (!first) return "the gradient of the last step is finite again" + rest;
  return fmt::format("the gradient is not finite in {} of {} parameters (nearest to the loss: {}){}", non_finite, count,
                     *first, rest);
}

std::string describe_gradient(World& world, Device& device, Network& network) {
  std::vector<float> gradient(std::size_t(network.layout().count));
  device.copy_to_host(Stream::compute, gradient.data(), network.gradient.data, gradient.size() * sizeof(float));
  device.synchronize();
  const auto own = network.buckets().shards(network.layout().count);
  std::vector<double> survey = scan_gradient(network.layout(), gradient, own);
  if (!own.empty()) world.all_reduce(survey, World::Reduce::max);
  return describe_gradient(network.graph(), survey);
}

// The floating-point targets of each binary_cross_entropy.
static std::vector<BinaryTargets> binary_targets(const NetworkSpec& spec) {
  const Graph graph = graph_of(spec, 1, Mode::infer);
  std::vector<BinaryTargets> out;
  for (const int i : graph.losses()) {
    const Node& node = graph.nodes[std::size_t(i)];
    const auto* loss = std::get_if<PointwiseLossSpec>(&node.spec);
    if (!loss || !loss->binary() || loss->targets != DType::f32) continue;
    const int part = graph.producer(node.src[1]);
    const std::int64_t begin = part < 0 ? 0 : std::get<SliceSpec>(graph.nodes[std::size_t(part)].spec).begin;
    out.push_back({begin, loss->src.row_count()});
  }
  return out;
}

std::string describe_samples(Session& s, std::int64_t step) {
  const std::vector<BinaryTargets> binary = binary_targets(s.spec);
  std::string mine;
  try {
    const auto next = s.micro_batches(step, step + 1);
    std::vector<std::int64_t> ids;
    while (const auto item = mine.empty() ? next() : std::nullopt) {
      ids.resize(std::size_t(item->rows));
      s.batching.train_order->ids(*item, ids.data());
      mine = find_non_finite_sample(*s.data.train_source, s.data.train, ids, binary);
    }
  } catch (const Error&) {  // a sample that cannot be read is not the cause
  }
  for (std::string& of_rank : s.world.gather(mine))
    if (!of_rank.empty()) return of_rank;
  return "";
}

}  // namespace millrace
