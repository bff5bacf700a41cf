// A network with all memory that a Program needs. Replaces the trainer's Network in tests of the model room.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "millrace/model/program.hpp"
#include "millrace/model/zoo.hpp"

namespace millrace::test {

// A network as text, with ten outputs.
inline ModelSpec written_network(std::vector<std::string> layers) {
  ModelSpec spec;
  spec.name = "layers";
  spec.outputs = 10;
  spec.layers = std::move(layers);
  return spec;
}

// The device must share its memory with the host. With 16-bit types, loss and gradient are scaled by 256.
class ProgramFixture {
 public:
  ProgramFixture(Device& device, Backend& backend, const ModelSpec& spec, std::int64_t rows, const Shape& sample,
                 int fusion, DType dtype = DType::f32)
      : ProgramFixture(device, backend, spec, {rows, sample, DType::u8, {}, true}, fusion, dtype) {}
  struct Kind {
    DType dtype = DType::f32;
    Mode mode = Mode::train;
    Kind(DType type, Mode m = Mode::train) : dtype(type), mode(m) {}
  };
  ProgramFixture(Device& device, Backend& backend, const ModelSpec& spec, const ModelBatch& batch, int fusion,
                 const Kind& kind = DType::f32, const std::function<void(Graph&)>& adjust = {})
      : batch_(batch), backend_(backend) {
    const DType dtype = kind.dtype;
    const std::int64_t rows = batch.rows;
    Graph graph = build_model(spec, batch, dtype, kind.mode);
    if (adjust) adjust(graph);
    layout = std::make_unique<ParameterLayout>(graph);
    master.resize(std::size_t(layout->count));
    gradient.resize(master.size());
    running.resize(std::size_t(layout->stats_count));
    stats.resize(running.size());
    layout->initialise(graph, 7, master.data(), running.data());
    CompiledGraph compiled = compile_graph(backend, std::move(graph), fusion);
    arena_ = Buffer(device, MemoryKind::device, compiled.plan.arena_bytes);
    packed_weights_ = Buffer(device, MemoryKind::device, compiled.plan.packed_weight_bytes + 64);
    weights_ = Buffer(device, MemoryKind::device, master.size() * size_of(dtype));
    std::memset(arena_.data(), 0xff, arena_.bytes());  // NaNs reveal reads of memory that was not written
    notes = compiled.notes;
    program = std::make_unique<Program>(
        std::move(compiled), *layout,
        ProgramMemory{.arena = arena_.data(),
                      .packed_weights = packed_weights_.data(),
                      .master = master.data(),
                      .weights = dtype == DType::f32 ? static_cast<void*>(master.data()) : weights_.data(),
                      .gradient = gradient.data(),
                      .running = running.data(),
                      .stats = stats.data(),
                      .state = &state});
    std::mt19937 random(3);
    x.resize(std::size_t(rows * batch.sample.count()) * size_of(batch.x_dtype));
    y.resize(std::size_t(rows * batch.target.count()));
    ids.resize(std::size_t(rows));
    for (auto& v : x) v = std::uint8_t(random());
    for (auto& label : y) label = std::int32_t(random() % 10);
    std::iota(ids.begin(), ids.end(), std::int64_t(0));
    state.row_weight = 1.0f / float(rows);
    if (dtype != DType::f32) state.loss_scale = 256;
  }

  double run(bool first = true, GradReadyHook* sink = nullptr) {
    forward(first);
    program->backward(first, sink);
    double total = 0;
    for (const int i : program->graph().losses()) {
      const Spec& loss = program->graph().nodes[std::size_t(i)].spec;
      const LossTerm& term = loss_term(loss);
      total += double(term.factor) * state.losses[term.number].sum / double(terms_of_row(loss));
    }
    return total * double(state.row_weight);
  }
  void forward(bool first = true) {
    for (LossSums& sums : state.losses) sums = {};
    const Graph& g = program->graph();
    if (g.dtype != DType::f32)
      backend_.convert(weights_.data(), g.dtype, master.data(), DType::f32, std::int64_t(master.size()));
    program->repack_weights();
    program->forward({x.data(), batch_.x_dtype, g.values[Graph::x].shape},
                     {y.data(), g.values[Graph::y].dtype, g.values[Graph::y].shape}, {ids.data(), DType::i64, {g.rows}},
                     first);
  }

  // In the order of the parameters, which does not depend on the types.
  std::vector<float> gradient_by_parameter() const {
    std::vector<float> out;
    for (const auto& slot : layout->parameters)
      out.insert(out.end(), gradient.begin() + slot.begin, gradient.begin() + slot.begin + slot.count);
    return out;
  }

  std::unique_ptr<ParameterLayout> layout;
  std::unique_ptr<Program> program;
  std::vector<std::string> notes;
  std::vector<float> master, gradient, running, stats;
  StepState state;
  std::vector<std::uint8_t> x;  // bytes of batch.x_dtype
  std::vector<std::int32_t> y;  // targets: the bits of float32
  std::vector<std::int64_t> ids;

 private:
  ModelBatch batch_;
  Backend& backend_;
  Buffer arena_, packed_weights_, weights_;
};

// |actual / scale - expected| / |expected|, with the norms over all elements.
inline double relative_error(const std::vector<float>& actual, const std::vector<float>& expected, double scale = 1) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(double(actual[i]) / scale - double(expected[i]), 2);
    norm += std::pow(double(expected[i]), 2);
  }
  return norm > 0 ? std::sqrt(error / norm) : std::numeric_limits<double>::infinity();
}

// Counts the nodes of a graph that use one of the fusions of levels 2 and 3.
template <class Of>
int count_fused(const Graph& graph, bool Of::*fusion) {
  int count = 0;
  for (const Node& node : graph.nodes)
    if (const auto* spec = std::get_if<Of>(&node.spec)) count += spec->*fusion;
  return count;
}

struct Tolerances {
  double loss, gradient, stats;
};

// Compares two micro-batches of the same network.
inline void expect_near(ProgramFixture& actual, ProgramFixture& expected, const Tolerances& t) {
  const double scale = double(actual.state.loss_scale) / double(expected.state.loss_scale);
  for (const bool first : {true, false}) {
    const double a = expected.run(first), b = actual.run(first);
    EXPECT_NEAR(a, b, t.loss * std::abs(a)) << first;
    EXPECT_LT(relative_error(actual.gradient_by_parameter(), expected.gradient_by_parameter(), scale), t.gradient)
        << first;
    if (expected.stats.empty()) continue;
    EXPECT_LT(relative_error(actual.stats, expected.stats), t.stats) << first;
  }
}

}  // namespace millrace::test
