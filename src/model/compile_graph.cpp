// compile_graph(): from a graph to prepared operations and a memory plan. Node i of n runs forward at time i; the steps
// of the backward pass follow (BackwardSchedule). Each buffer is a region that is in use from its first writer to its
// last reader. Regions that are never in use at the same time share memory.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "millrace/base/error.hpp"
#include "millrace/model/program.hpp"

namespace millrace {
namespace {

constexpr std::size_t alignment = 256;  // what libraries require for their scratch memory
std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

bool is_loss(const Node& node) { return node.dst < 0; }

// Calls f(value, index) for every pass that adds a gradient.
template <class F>
void each_add_pass(const CompiledGraph& compiled, const F& f) {
  for (std::size_t i = 0; i < compiled.graph.nodes.size(); ++i)
    for (std::size_t s = 0; s < compiled.graph.nodes[i].src.size(); ++s)
      if (compiled.gradient_stores[i][s] == GradientStore::add_pass) {
        const std::size_t v = std::size_t(compiled.graph.nodes[i].src[s]);
        f(compiled.graph.values[v], v);
      }
}

class Planner {
 public:
  explicit Planner(CompiledGraph& out)
      : out_(out),
        graph_(out.graph),
        schedule_(out.schedule),
        n_(int(graph_.nodes.size())),
        value_uses_(graph_.values.size()) {}

  void plan() {
    const std::size_t values = graph_.values.size();
    out_.value_region.assign(values, -1);
    out_.diff_region.assign(values, -1);
    out_.extra_region.assign(values, -1);
    out_.saved_region.assign(std::size_t(n_), -1);
    find_uses();
    find_shared_gradients();
    for (std::size_t v = 3; v < values; ++v) plan_value(int(v));
    std::size_t workspace = 0;
    for (int i = 0; i < n_; ++i) workspace = std::max(workspace, plan_node(i));
    for (const auto& adder : out_.gradient_adders)
      if (adder) workspace = std::max(workspace, adder->memory_requirements().workspace);
    if (workspace) out_.workspace_region = add("workspace", workspace, {0, schedule_.end_time - 1});
    std::int64_t stats = 0;
    for (const RunningStats& of : graph_.stats) stats = std::max(stats, 2 * of.channels);
    if (stats > 0 && schedule_.recomputed_count() > 0)
      out_.unused_stats_region =
          add("recomputed statistics", std::size_t(stats) * sizeof(float), {n_, schedule_.end_time - 1});
    out_.plan.arena_bytes = place_regions(out_.plan.regions);
  }

 private:
  int add(const std::string& name, std::size_t bytes, Lifetime use, std::optional<Lifetime> again = {}) {
    out_.plan.regions.push_back({name, aligned(bytes), 0, use.first, use.last, again});
    return int(out_.plan.regions.size()) - 1;
  }

  struct Uses {
    Lifetime use{-1, -1};
    std::optional<Lifetime> again;
    void touch(int time) {
      if (again)
        again->last = std::max(again->last, time);
      else
        use.last = std::max(use.last, time);
    }
  };

  // When each value is in use: from the node that writes it to its last reader, and again if it is recomputed.
  void find_uses() {
    const auto uses = [&](int value) -> Uses& { return value_uses_[std::size_t(value)]; };
    for (int i = 0; i < n_; ++i) {
      const Node& node = graph_.nodes[std::size_t(i)];
      for (const int v : forward_reads(graph_, node)) uses(v).touch(i);
      if (node.dst >= 0) uses(node.dst).use = {i, i};
    }
    for (std::size_t k = 0; k < schedule_.steps.size(); ++k) {
      const auto& [index, work] = schedule_.steps[k];
      const Node& node = graph_.nodes[std::size_t(index)];
      const int time = n_ + int(k);
      const bool recompute = work == NodeWork::recompute;
      for (const int v : recompute ? forward_reads(graph_, node) : backward_reads(graph_, node)) uses(v).touch(time);
      if (recompute) uses(node.dst).again = {time, time};
    }
    for (const int v : graph_.outputs) uses(v).touch(schedule_.end_time - 1);
  }

  // The source of a node that only changes its extents; -1: the node does more, or reads the batch. The source comes
  // before the result, so it is planned already.
  int reshaped(int producer) const {
    const Node& node = graph_.nodes[std::size_t(producer)];
    return std::holds_alternative<ReshapeSpec>(node.spec) && node.src[0] > Graph::ids ? node.src[0] : -1;
  }
  // Region `number` is in use at these times too.
  int use_also(int number, Lifetime use, std::optional<Lifetime> again = {}) {
    Region& region = out_.plan.regions[std::size_t(number)];
    region.first = std::min(region.first, use.first);
    region.last = std::max(region.last, use.last);
    if (region.again && again)
      region.again = {std::min(region.again->first, again->first), std::max(region.again->last, again->last)};
    else if (again)
      region.again = again;
    return number;
  }

  // Values that share the memory of their gradient are a group. It has the number of one of them.
  int group(int v) const {
    while (group_[std::size_t(v)] != v) v = group_[std::size_t(v)];
    return v;
  }
  void find_shared_gradients() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) group_.push_back(int(v));
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      for (std::size_t s = 0; s < graph_.nodes[i].src.size(); ++s)
        if (out_.gradient_stores[i][s] == GradientStore::shared)
          group_[std::size_t(group(graph_.nodes[i].dst))] = group(graph_.nodes[i].src[s]);
    group_region_.assign(graph_.values.size(), -1);
  }

  void plan_value(int v) {
    const int producer = graph_.producer(v);
    if (producer < 0) return plan_shared(v);
    const Value& value = graph_.values[std::size_t(v)];
    const std::size_t bytes = std::size_t(value.shape.count()) * size_of(value.dtype);
    const auto* norm = std::get_if<BatchNormSpec>(&graph_.nodes[std::size_t(producer)].spec);
    const Uses& uses = value_uses_[std::size_t(v)];
    const int whole = reshaped(producer);
    if (const int shared = whole < 0 ? -1 : out_.value_region[std::size_t(whole)]; shared >= 0)
      out_.value_region[std::size_t(v)] = use_also(shared, uses.use, uses.again);
    else if ((!norm || !norm->produces_affine) && !(producer == 0 && out_.leaves_out_input))
      out_.value_region[std::size_t(v)] = add(value.name, bytes, uses.use, uses.again);
    int last_user = -1;
    for (int i = 0; i < n_; ++i)
      if (std::ranges::find(graph_.nodes[std::size_t(i)].src, v) != graph_.nodes[std::size_t(i)].src.end())
        last_user = i;
    if (graph_.mode != Mode::train || !value.needs_grad || last_user < 0) return;
    // A loss writes the gradient of its source in its forward pass.
    const int first =
        is_loss(graph_.nodes[std::size_t(last_user)]) ? last_user : schedule_.backward_time[std::size_t(last_user)];
    const Lifetime use{first, schedule_.backward_time[std::size_t(producer)]};
    // The gradient of a value with one reader is what that reader writes.
    int& of_group = group_region_[std::size_t(group(v))];
    if (of_group < 0 && whole >= 0 && graph_.single_consumer(whole) >= 0)
      of_group = out_.diff_region[std::size_t(whole)];
    of_group = of_group >= 0 ? use_also(of_group, use) : add(value.name + ".diff", bytes, use);
    out_.diff_region[std::size_t(v)] = of_group;
    if (out_.gradient_adders[std::size_t(v)])
      out_.extra_region[std::size_t(v)] = add(value.name + ".diff2", bytes, use);
  }

  // Returns the bytes of scratch memory.
  std::size_t plan_node(int i) {
    const MemoryRequirements needs = out_.ops[std::size_t(i)]->memory_requirements();
    if (needs.saved) {
      const int backward = std::max(i, schedule_.backward_time[std::size_t(i)]);
      const std::string name = graph_.nodes[std::size_t(i)].name + ".saved";
      out_.saved_region[std::size_t(i)] =
          schedule_.recomputes(i)
              ? add(name, needs.saved, {i, i}, Lifetime{schedule_.recompute_time[std::size_t(i)], backward})
              : add(name, needs.saved, {i, backward});
    }
    out_.packed_weight_offset.push_back(needs.packed_weights > 0 ? std::optional(out_.plan.packed_weight_bytes)
                                                                 : std::nullopt);
    out_.plan.packed_weight_bytes += aligned(needs.packed_weights);
    out_.cache_offset.push_back(out_.plan.cache_bytes);
    out_.plan.cache_bytes += aligned(needs.cache);
    return needs.workspace;
  }

  // Values that fused nodes share (sums, moments, affine and their like of a norm, diff_bias of a linear layer) are in
  // use from the first to the last of these nodes. They are small, and kept if the nodes run again.
  void plan_shared(int v) {
    int first = schedule_.end_time, last = -1;
    const auto touch = [&](int time) {
      if (time < 0) return;
      first = std::min(first, time);
      last = std::max(last, time);
    };
    for (int i = 0; i < n_; ++i) {
      const Node& node = graph_.nodes[std::size_t(i)];
      const bool forward =
          node.sums == v || node.residual_sums == v || node.affine == v || (node.moments == v && node.norm < 0);
      if (forward) touch(i);
      if (forward) touch(schedule_.recompute_time[std::size_t(i)]);
      if (node.moments == v || (node.affine == v && node.norm >= 0) || node.diff_sums == v || node.diff_affine == v ||
          node.diff_bias == v || node.src_diff_bias == v)
        touch(schedule_.backward_time[std::size_t(i)]);
    }
    if (last < 0) return;  // fused away
    const Value& value = graph_.values[std::size_t(v)];
    out_.value_region[std::size_t(v)] =
        add(value.name, std::size_t(value.shape.count()) * size_of(value.dtype), {first, last});
  }

  CompiledGraph& out_;
  const Graph& graph_;
  const BackwardSchedule& schedule_;
  int n_;
  std::vector<Uses> value_uses_;           // by value
  std::vector<int> group_, group_region_;  // by value: another one of its group, or itself; the region of a gradient
};

bool overlap(const Region& a, const Region& b) {
  const auto meet = [](int first, int last, int other_first, int other_last) {
    return first <= other_last && other_first <= last;
  };
  const auto meets = [&](int first, int last) {
    return meet(first, last, b.first, b.last) || (b.again && meet(first, last, b.again->first, b.again->last));
  };
  return meets(a.first, a.last) || (a.again && meets(a.again->first, a.again->last));
}

}  // namespace

std::size_t place_regions(std::vector<Region>& regions) {
  std::vector<int> order(regions.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return regions[std::size_t(a)].bytes > regions[std::size_t(b)].bytes; });
  std::size_t total = 0;
  std::vector<int> placed;
  for (int r : order) {
    Region& region = regions[std::size_t(r)];
    // The ranges [begin, end) of regions that are in use at the same time.
    std::vector<std::pair<std::size_t, std::size_t>> taken;
    for (int p : placed) {
      const Region& other = regions[std::size_t(p)];
      if (overlap(other, region)) taken.emplace_back(other.offset, other.offset + other.bytes);
    }
    std::sort(taken.begin(), taken.end());
    std::size_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (begin >= offset + region.bytes) break;
      offset = std::max(offset, end);
    }
    region.offset = offset;
    total = std::max(total, offset + region.bytes);
    placed.push_back(r);
  }
  return total;
}

Cost CompiledGraph::cost() const {
  Cost sum;
  const auto add = [&](const Cost& c) {
    sum.flops += c.flops;
    sum.bytes += c.bytes;
  };
  for (std::size_t i = leaves_out_input ? 1 : 0; i < graph.nodes.size(); ++i) {
    const Spec& spec = graph.nodes[i].spec;
    add(forward_cost(spec));
    Cost backward = backward_cost(spec);
    const auto has = [&](GradientStore kind) { return std::ranges::count(gradient_stores[i], kind) > 0; };
    // An addition copies its gradient only to a source that does not share it.
    if (has(GradientStore::shared))
      backward.bytes *= has(GradientStore::write) || has(GradientStore::add_pass) ? 2.0 / 3 : 0.0;
    if (graph.mode == Mode::train) add(backward);
  }
  for (const BackwardStep& step : schedule.steps)
    if (step.work == NodeWork::recompute) add(forward_cost(graph.nodes[std::size_t(step.node)].spec));
  each_add_pass(*this, [&](const Value& value, std::size_t) {
    add(forward_cost(AddSpec{value.shape, value.dtype, graph.mode}));
  });
  return sum;
}

CompiledGraph compile_graph(Backend& backend, Graph graph, int fusion_level) {
  CompiledGraph out;
  out.device = &backend.device();
  out.only_what_pays = fusion_level < 0;
  out.graph = rewrite_for(backend, std::move(graph), fusion_level, out.fusion_level, out.notes);
  for (const auto& node : out.graph.nodes) out.ops.push_back(backend.make(node.spec));
  out.leaves_out_input = can_leave_out_input(out.graph, *out.ops.front());
  out.schedule = schedule_backward(out.graph);
  out.gradient_stores = gradient_stores(out.graph);
  out.gradient_adders.resize(out.graph.values.size());
  each_add_pass(out, [&](const Value& value, std::size_t v) {
    if (!out.gradient_adders[v]) out.gradient_adders[v] = backend.make(AddSpec{value.shape, value.dtype, Mode::train});
  });
  Planner(out).plan();
  return out;
}

}  // namespace millrace
