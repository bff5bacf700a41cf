// compile_graph(): from a graph to prepared operations and a memory plan. Node i of n runs forward at time i and
// backward at time 2n - 1 - i. Each buffer is a region that is in use from its first writer to its last reader. Regions
// that are never in use at the same time share memory.
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

template <class Member>
bool keeps(const Spec& spec, Member member) {
  return std::visit(member, spec);
}

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
      : out_(out), n_(int(out.graph.nodes.size())), train_(out.graph.mode == Mode::train) {}

  void plan() {
    const Graph& graph = out_.graph;
    const std::size_t values = graph.values.size();
    out_.value_region.assign(values, -1);
    out_.diff_region.assign(values, -1);
    out_.extra_region.assign(values, -1);
    out_.saved_region.assign(std::size_t(n_), -1);
    for (std::size_t v = 3; v < values; ++v) plan_value(int(v));
    std::size_t workspace = 0;
    for (int i = 0; i < n_; ++i) {
      const MemoryRequirements needs = out_.ops[std::size_t(i)]->memory_requirements();
      workspace = std::max(workspace, needs.workspace);
      if (needs.saved)
        out_.saved_region[std::size_t(i)] =
            add(graph.nodes[std::size_t(i)].name + ".saved", needs.saved, i, backward_time(i));
      out_.packed_weight_offset.push_back(needs.packed_weights > 0 ? std::optional(out_.plan.packed_weight_bytes)
                                                                   : std::nullopt);
      out_.plan.packed_weight_bytes += aligned(needs.packed_weights);
    }
    for (const auto& adder : out_.gradient_adders)
      if (adder) workspace = std::max(workspace, adder->memory_requirements().workspace);
    if (workspace) out_.workspace_region = add("workspace", workspace, 0, 2 * n_ - 1);
    out_.plan.arena_bytes = place_regions(out_.plan.regions);
  }

 private:
  int backward_time(int node) const { return train_ ? 2 * n_ - 1 - node : node; }

  int add(const std::string& name, std::size_t bytes, int first, int last) {
    out_.plan.regions.push_back({name, aligned(bytes), 0, first, last});
    return int(out_.plan.regions.size()) - 1;
  }

  // The source of a node that only changes its extents; -1: the node does more, or reads the batch. The source comes
  // before the result, so it is planned already.
  int reshaped(int producer) const {
    const Node& node = out_.graph.nodes[std::size_t(producer)];
    return std::holds_alternative<ReshapeSpec>(node.spec) && node.src[0] > Graph::ids ? node.src[0] : -1;
  }
  int use_from(int number, int first, int last) {
    Region& region = out_.plan.regions[std::size_t(number)];
    region.first = std::min(region.first, first);
    region.last = std::max(region.last, last);
    return number;
  }

  void plan_value(int v) {
    const Graph& graph = out_.graph;
    const Value& value = graph.values[std::size_t(v)];
    int producer = -1, last = -1, last_user = -1, users = 0;
    for (int i = 0; i < n_; ++i) {
      const Node& node = graph.nodes[std::size_t(i)];
      if (node.dst == v) {
        producer = i;
        last = std::max(last, i);
        if (keeps(node.spec, [](const auto& s) { return s.keeps_dst; })) last = std::max(last, backward_time(i));
      }
      for (int s : node.src) {
        if (s != v) continue;
        ++users;
        last_user = i;
        last = std::max(last, i);
        if (keeps(node.spec, [](const auto& spec) { return spec.keeps_src; })) last = std::max(last, backward_time(i));
      }
    }
    if (producer < 0) return plan_shared(v);
    const std::size_t bytes = std::size_t(value.shape.count()) * size_of(value.dtype);
    const auto* norm = std::get_if<BatchNormSpec>(&graph.nodes[std::size_t(producer)].spec);
    const int whole = reshaped(producer);
    if (const int shared = whole < 0 ? -1 : out_.value_region[std::size_t(whole)]; shared >= 0)
      out_.value_region[std::size_t(v)] = use_from(shared, producer, last);
    else if (!norm || !norm->produces_affine)
      out_.value_region[std::size_t(v)] = add(value.name, bytes, producer, last);
    if (!train_ || !value.needs_grad || users == 0) return;
    // A loss writes the gradient of its source in its forward pass.
    const int first = is_loss(graph.nodes[std::size_t(last_user)]) ? last_user : backward_time(last_user);
    // The gradient of a value with one reader is what that reader writes.
    const int shared = whole < 0 || graph.single_consumer(whole) < 0 ? -1 : out_.diff_region[std::size_t(whole)];
    out_.diff_region[std::size_t(v)] = shared >= 0 ? use_from(shared, first, backward_time(producer))
                                                   : add(value.name + ".diff", bytes, first, backward_time(producer));
    if (out_.gradient_adders[std::size_t(v)])
      out_.extra_region[std::size_t(v)] = add(value.name + ".diff2", bytes, first, backward_time(producer));
  }

  // Values that fused nodes share (sums, moments, diff_sums and affine of a norm, diff_bias of a linear layer) are in
  // use from the first to the last of these nodes.
  void plan_shared(int v) {
    int first = 2 * n_, last = -1;
    const auto touch = [&](int time) {
      first = std::min(first, time);
      last = std::max(last, time);
    };
    for (int i = 0; i < n_; ++i) {
      const Node& node = out_.graph.nodes[std::size_t(i)];
      if (node.sums == v || node.residual_sums == v || node.affine == v || (node.moments == v && node.norm < 0))
        touch(i);
      if (node.moments == v || (node.affine == v && node.norm >= 0) || node.diff_sums == v || node.diff_bias == v ||
          node.src_diff_bias == v)
        touch(backward_time(i));
    }
    if (last < 0) return;  // fused away
    const Value& value = out_.graph.values[std::size_t(v)];
    out_.value_region[std::size_t(v)] =
        add(value.name, std::size_t(value.shape.count()) * size_of(value.dtype), first, last);
  }

  CompiledGraph& out_;
  int n_;
  bool train_;
};

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
      if (other.first <= region.last && region.first <= other.last)
        taken.emplace_back(other.offset, other.offset + other.bytes);
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
  for (const Node& node : graph.nodes) {
    add(forward_cost(node.spec));
    if (graph.mode == Mode::train) add(backward_cost(node.spec));
  }
  each_add_pass(*this, [&](const Value& value, std::size_t) {
    add(forward_cost(AddSpec{value.shape, value.dtype, graph.mode}));
  });
  return sum;
}

CompiledGraph compile_graph(Backend& backend, Graph graph, int fusion_level) {
  CompiledGraph out;
  out.device = &backend.device();
  const int most = backend.max_fusion_level();
  out.fusion_level = std::min(fusion_level < 0 ? backend.default_fusion_level() : fusion_level, most);
  if (fusion_level > most)
    out.notes.push_back(fmt::format("fusion level {} is not supported. level {} is used", fusion_level, most));
  out.graph = rewrite(std::move(graph), backend, out.fusion_level, out.notes);
  for (const auto& node : out.graph.nodes) out.ops.push_back(backend.make(node.spec));
  out.gradient_stores = gradient_stores(out.graph);
  out.gradient_adders.resize(out.graph.values.size());
  each_add_pass(out, [&](const Value& value, std::size_t v) {
    if (!out.gradient_adders[v]) out.gradient_adders[v] = backend.make(AddSpec{value.shape, value.dtype, Mode::train});
  });
  Planner(out).plan();
  return out;
}

}  // namespace millrace
