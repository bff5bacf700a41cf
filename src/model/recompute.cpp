#include "millrace/model/recompute.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

using Flags = std::vector<char>;

bool of_batch(int value) { return value <= Graph::ids; }

double bytes_of(const Value& value) { return double(value.shape.count()) * double(size_of(value.dtype)); }

// A norm at fusion level 3 stores no result, only its scale and bias.
bool stores_result(const Node& node) {
  const auto* norm = std::get_if<BatchNormSpec>(&node.spec);
  return node.dst >= 0 && !(norm && norm->produces_affine);
}

bool runs_backward(const Graph& graph, const Node& node) {
  return node.dst < 0 || graph.values[std::size_t(node.dst)].needs_grad;
}

// A norm that waits for the other ranks: how often and in which order must not depend on the rows of a rank.
bool meets_ranks(const Node& node) {
  const auto* norm = std::get_if<BatchNormSpec>(&node.spec);
  return norm && norm->synchronised;
}

// Nodes that read samples or labels do not run again: labels may change once the forward pass has read them, and
// keeping the result of an input pass takes little memory. A loss writes its gradient.
bool can_run_again(const Node& node) {
  return stores_result(node) && !meets_ranks(node) &&
         std::ranges::none_of(node.src, [](int v) { return v == Graph::x || v == Graph::y; });
}

// The source of a convolution that normalises what it reads is the source of that norm.
int stored_source(const Graph& graph, const Node& node, std::size_t s) {
  return node.affine >= 0 && node.norm >= 0 && s == 0 ? graph.nodes[std::size_t(node.norm)].src[0] : node.src[s];
}

}  // namespace

int BackwardSchedule::recomputed_count() const {
  return int(std::ranges::count_if(recompute_time, [](int time) { return time >= 0; }));
}

std::vector<int> forward_reads(const Graph& graph, const Node& node) {
  std::vector<int> out;
  for (std::size_t s = 0; s < node.src.size(); ++s)
    if (!of_batch(node.src[s])) out.push_back(stored_source(graph, node, s));
  return out;
}

std::vector<int> backward_reads(const Graph& graph, const Node& node) {
  if (node.dst < 0) return {};  // the forward pass of a loss has computed the gradient
  std::vector<int> out;
  if (keeps_src(node.spec)) out = forward_reads(graph, node);
  if (keeps_dst(node.spec)) out.push_back(node.dst);
  if (node.norm >= 0) out.push_back(graph.nodes[std::size_t(node.norm)].src[0]);
  return out;
}

namespace {

// The order of the backward pass if the values in `dropped` are not kept.
class Scheduler {
 public:
  Scheduler(const Graph& graph, const Flags& dropped, const std::vector<int>& producer)
      : graph_(graph), missing_(dropped), producer_(producer) {
    out_.backward_time.assign(graph.nodes.size(), -1);
    out_.recompute_time.assign(graph.nodes.size(), -1);
  }

  BackwardSchedule run() {
    for (int i = int(graph_.nodes.size()) - 1; i >= 0; --i) {
      const Node& node = graph_.nodes[std::size_t(i)];
      if (!runs_backward(graph_, node)) continue;
      std::vector<int> again;
      for (const int value : backward_reads(graph_, node)) collect(value, again);
      std::ranges::sort(again);
      for (const int n : again) step(n, NodeWork::recompute);
      step(i, NodeWork::backward);
    }
    out_.end_time = int(graph_.nodes.size() + out_.steps.size());
    return std::move(out_);
  }

 private:
  // The nodes that must run again before the value can be read.
  void collect(int value, std::vector<int>& again) {
    if (!missing_[std::size_t(value)]) return;
    missing_[std::size_t(value)] = false;
    const int node = producer_[std::size_t(value)];
    for (const int source : forward_reads(graph_, graph_.nodes[std::size_t(node)])) collect(source, again);
    again.push_back(node);
  }
  void step(int node, NodeWork work) {
    auto& times = work == NodeWork::backward ? out_.backward_time : out_.recompute_time;
    times[std::size_t(node)] = int(graph_.nodes.size() + out_.steps.size());
    out_.steps.push_back({node, work});
  }

  const Graph& graph_;
  Flags missing_;
  const std::vector<int>& producer_;
  BackwardSchedule out_;
};

// Which values are dropped at each level.
class Chooser {
 public:
  explicit Chooser(const Graph& graph)
      : graph_(graph),
        producer_(graph.values.size(), -1),
        last_reader_(graph.values.size(), -1),
        needed_(graph.values.size(), false) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.dst >= 0) producer_[std::size_t(node.dst)] = int(i);
      for (const int v : forward_reads(graph, node)) last_reader_[std::size_t(v)] = int(i);
      if (!runs_backward(graph, node)) continue;
      for (const int v : backward_reads(graph, node)) needed_[std::size_t(v)] = true;
    }
  }

  BackwardSchedule schedule(const Flags& dropped) const { return Scheduler(graph_, dropped, producer_).run(); }
  Flags nothing() const { return Flags(graph_.values.size(), false); }

  Flags selective() const {
    Flags dropped = nothing();
    for (const Node& node : graph_.nodes) {
      // The sum of a residual would need its other summand, and so on up to the first layer.
      if (!can_run_again(node) || flops_of(node.spec) > 0 || std::holds_alternative<AddSpec>(node.spec)) continue;
      const std::vector<int> sources = forward_reads(graph_, node);
      dropped[std::size_t(node.dst)] = needed_[std::size_t(node.dst)] &&
                                       std::ranges::all_of(sources, [&](int v) { return needed_[std::size_t(v)]; });
    }
    return dropped;
  }

  Flags full() const {
    Flags best = nothing();
    double fewest = peak_bytes(best);
    const int most = int(graph_.nodes.size());
    for (int segments = 2; segments <= most; segments += 1 + segments / 3) {
      Flags dropped = between(cuts(segments));
      if (const double bytes = peak_bytes(dropped); bytes < fewest) {
        fewest = bytes;
        best = std::move(dropped);
      }
    }
    return best;
  }

 private:
  // Positions between nodes that divide the kept bytes into about equal segments: of each range, the position at which
  // later nodes need the fewest bytes of earlier ones. A cut at c is behind node c.
  std::vector<int> cuts(int segments) const {
    const std::size_t n = graph_.nodes.size();
    std::vector<double> before(n, 0), crossing(n, 0);
    double kept = 0, across = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const int v = graph_.nodes[i].dst;
      if (v >= 0 && needed_[std::size_t(v)]) kept += bytes_of(graph_.values[std::size_t(v)]);
      before[i] = kept;
      if (v >= 0 && last_reader_[std::size_t(v)] > int(i)) {
        crossing[i] += bytes_of(graph_.values[std::size_t(v)]);
        crossing[std::size_t(last_reader_[std::size_t(v)])] -= bytes_of(graph_.values[std::size_t(v)]);
      }
      crossing[i] = across += crossing[i];
    }
    if (kept <= 0) return {};
    std::vector<int> best(std::size_t(segments), -1);
    for (std::size_t i = 0; i + 1 < n; ++i) {
      const int nearest = int(before[i] / kept * segments + 0.5);
      if (nearest < 1 || nearest >= segments) continue;
      int& found = best[std::size_t(nearest)];
      if (found < 0 || crossing[i] < crossing[std::size_t(found)]) found = int(i);
    }
    std::erase(best, -1);
    return best;
  }

  // What lies between two cuts and is read only there. The backward pass begins with the segment behind the last cut.
  Flags between(const std::vector<int>& cuts) const {
    Flags dropped = nothing();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const auto end = std::ranges::lower_bound(cuts, int(i));  // the first cut behind the node
      if (end != cuts.end() && can_run_again(node))
        dropped[std::size_t(node.dst)] = last_reader_[std::size_t(node.dst)] <= *end;
    }
    return dropped;
  }

  // The most bytes of values and gradients in use at one time.
  double peak_bytes(const Flags& dropped) const {
    const BackwardSchedule schedule = this->schedule(dropped);
    const int n = int(graph_.nodes.size());
    std::vector<double> change(std::size_t(schedule.end_time) + 1, 0);
    const auto use = [&](std::size_t value, int first, int last) {
      change[std::size_t(first)] += bytes_of(graph_.values[value]);
      change[std::size_t(last) + 1] -= bytes_of(graph_.values[value]);
    };
    std::vector<int> last_backward(graph_.values.size(), -1);
    for (std::size_t k = 0; k < schedule.steps.size(); ++k) {
      const auto& [index, work] = schedule.steps[k];
      const Node& node = graph_.nodes[std::size_t(index)];
      for (const int v : work == NodeWork::recompute ? forward_reads(graph_, node) : backward_reads(graph_, node))
        last_backward[std::size_t(v)] = n + int(k);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const int node = producer_[v];
      if (node < 0 || !stores_result(graph_.nodes[std::size_t(node)])) continue;
      const int again = schedule.recompute_time[std::size_t(node)];
      const int forward = std::max(node, last_reader_[v]);
      use(v, node, again >= 0 ? forward : std::max(forward, last_backward[v]));
      if (again >= 0) use(v, again, std::max(again, last_backward[v]));
      const int done = schedule.backward_time[std::size_t(node)];
      if (done < 0 || last_reader_[v] < 0) continue;
      const int reader = schedule.backward_time[std::size_t(last_reader_[v])];
      if (reader >= 0) use(v, reader, done);
    }
    double bytes = 0, most = 0;
    for (const double by : change) most = std::max(most, bytes += by);
    return most;
  }

  const Graph& graph_;
  std::vector<int> producer_, last_reader_;  // by value: the node that writes it; the last one that reads it forward
  Flags needed_;                             // by value: the backward pass reads it
};

}  // namespace

BackwardSchedule schedule_backward(const Graph& graph) {
  if (graph.mode != Mode::train) {
    BackwardSchedule none;
    none.backward_time.assign(graph.nodes.size(), -1);
    none.recompute_time = none.backward_time;
    none.end_time = int(graph.nodes.size());
    return none;
  }
  const Chooser chooser(graph);
  switch (graph.recompute) {
    case Recompute::off:
      break;
    case Recompute::selective:
      return chooser.schedule(chooser.selective());
    case Recompute::full:
      return chooser.schedule(chooser.full());
  }
  return chooser.schedule(chooser.nothing());
}

}  // namespace millrace
