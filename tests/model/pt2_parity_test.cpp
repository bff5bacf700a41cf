// Compares networks that PyTorch has exported with what PyTorch computes in float64. tests/parity/pt2_record.py has
// written the networks (tests/fixtures/pt2) and recorded the values.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "millrace/model/pt2/import.hpp"
#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"
#include "support/recorded.hpp"

namespace millrace {
namespace pt2_parity_test {

using namespace test;
using nlohmann::json;

constexpr double tolerance = 1e-5;

// `MILLRACE_PARITY=FOLDER`: archives and values of another version of PyTorch, see pt2_record.py.
std::filesystem::path archives() {
  const char* other = std::getenv("MILLRACE_PARITY");
  return other ? std::filesystem::path(other) : std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/fixtures/pt2";
}

ModelSpec spec_of(const json& c) {
  ModelSpec spec;
  spec.name = "pt2";
  spec.outputs = c["outputs"];
  spec.tokens = c["sample"].size() == 1;
  spec.input.scale = 1.0f / 255;
  spec.exported = std::make_shared<const pt2::ExportedProgram>(
      pt2::read_exported_program(archives() / c.value("archive", c["name"].get<std::string>() + ".pt2")));
  return spec;
}

ModelBatch batch_of(const json& c) {
  ModelBatch batch;
  batch.rows = c["rows"];
  for (const std::int64_t extent : c["sample"]) batch.sample.dims[std::size_t(batch.sample.rank++)] = extent;
  const bool tokens = batch.sample.rank == 1, maps = c["name"] == "unet";
  batch.x_dtype = tokens ? DType::u16 : DType::u8;
  if (tokens || maps) batch.target = batch.sample;
  if (maps) --batch.target.rank;
  return batch;
}

void fill_batch(const json& c, std::vector<std::uint8_t>& x, std::vector<std::int32_t>& y) {
  const ModelBatch batch = batch_of(c);
  const std::string name = c["name"];
  const Sequence samples(name + " x"), labels(name + " y");
  for (std::int64_t i = 0; i < batch.rows * batch.sample.count(); ++i)
    if (batch.x_dtype == DType::u8)
      x[std::size_t(i)] = std::uint8_t(samples.below(256, i));
    else
      reinterpret_cast<std::uint16_t*>(x.data())[i] = std::uint16_t(samples.below(c["outputs"], i));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::int32_t(labels.below(c["outputs"], std::int64_t(i)));
}

// The values of the archive, in the flat buffers.
void fill_weights(const ModelSpec& spec, const Graph& graph, const ParameterLayout& layout, float* master,
                  float* running) {
  pt2::ArchiveValues archive(*spec.exported, graph);
  for (std::size_t p = 0; p < graph.parameters.size(); ++p)
    archive.read_parameter(int(p), {master + layout.parameters[p].begin, std::size_t(layout.parameters[p].count)});
  for (std::size_t s = 0; s < graph.stats.size(); ++s)
    archive.read_statistics(int(s), {running + layout.stats[s].begin, std::size_t(layout.stats[s].count)});
}

// Norm, and product with a vector of the formula, against the recorded ones. Both are judged against the norm.
template <class At>
void expect_digest(const std::string& name, std::int64_t count, const At& at, const json& expected) {
  const Sequence digest(name + " digest");
  double square = 0, product = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    square += at(i) * at(i);
    product += at(i) * digest.uniform(i);
  }
  const double norm = expected[0];
  EXPECT_NEAR(std::sqrt(square), norm, tolerance * norm) << name;
  EXPECT_NEAR(product, expected[1].get<double>(), tolerance * norm) << name;
}

void expect_logits(const Program& program, const json& expected) {
  const Tensor& logits = program.value(program.graph().nodes.back().src[0]);
  expect_digest(
      "logits", logits.count(), [&](std::int64_t i) { return double(logits.as<float>()[i]); }, expected);
}

// The gradients in PyTorch's order of the elements.
void expect_gradients(const ProgramFixture& f, const json& expected) {
  const Graph& graph = f.program->graph();
  EXPECT_EQ(expected.size(), graph.parameters.size());
  double largest = 0;
  for (const json& one : expected) largest = std::max(largest, one[0].get<double>());
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    ASSERT_TRUE(expected.contains(parameter.name)) << parameter.name;
    const json& one = expected[parameter.name];
    if (one[0].get<double>() < 1e-9 * largest) continue;  // a bias in front of a norm
    const float* gradient = &f.gradient[std::size_t(f.layout->parameters[p].begin)];
    const auto in_pytorch_order = [&](std::int64_t i) {
      std::int64_t offset = 0;
      for (int axis = parameter.archive.extents.rank - 1; axis >= 0; --axis) {
        offset += i % parameter.archive.extents[axis] * parameter.archive.strides[std::size_t(axis)];
        i /= parameter.archive.extents[axis];
      }
      return double(gradient[offset]);
    };
    expect_digest(parameter.name, parameter.shape.count(), in_pytorch_order, one);
  }
}

json all_cases() {
  json out = recorded("pt2.json")["cases"];
  for (const char* file : {"pt2_more.json", "pt2_text.json", "pt2_recurrent.json"}) {
    const json more = recorded(file)["cases"];
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

class Pt2Parity : public ::testing::Test {
 protected:
  const json cases_ = all_cases();
  const CpuContext cpu_;
  std::unique_ptr<ProgramFixture> start(const json& c) const {
    const ModelSpec spec = spec_of(c);
    auto f = std::make_unique<ProgramFixture>(*cpu_.compute.device, *cpu_.compute.backend, spec, batch_of(c), -1);
    fill_weights(spec, f->program->graph(), *f->layout, f->master.data(), f->running.data());
    fill_batch(c, f->x, f->y);
    return f;
  }
};

TEST_F(Pt2Parity, LogitsGradientsAndTenLossesAreThoseOfPyTorch) {
  int compared = 0;
  for (const json& c : cases_) {
    if (!c.contains("losses")) continue;
    SCOPED_TRACE(c["name"].get<std::string>());
    const auto started = start(c);
    ProgramFixture& f = *started;
    f.forward();
    expect_logits(*f.program, c["logits"]);
    EXPECT_EQ(c["losses"].size(), 10u);
    for (std::size_t step = 0; step < c["losses"].size(); ++step) {
      const double expected = c["losses"][step];
      EXPECT_NEAR(f.run(), expected, tolerance * expected) << "loss " << step;
      if (step == 0) expect_gradients(f, c["gradients"]);
      const float rate = c["rate"].get<float>();
      for (std::size_t i = 0; i < f.master.size(); ++i) f.master[i] -= rate * f.gradient[i];
    }
    ++compared;
  }
  EXPECT_EQ(compared, 28);
}

TEST_F(Pt2Parity, TenLossesWithAdamWAreThoseOfPyTorch) {
  for (const json& c : cases_) {
    if (!c.contains("losses")) continue;
    SCOPED_TRACE(c["name"].get<std::string>());
    const auto started = start(c);
    ProgramFixture& f = *started;
    OptimizerSpec spec;
    spec.kind = OptimizerSpec::Kind::adamw;
    spec.count = f.layout->count;
    spec.segments = f.layout->segments(default_rules(f.program->graph(), 0), spec);
    const auto optimizer = cpu_.compute.backend->make_optimizer(spec);
    std::vector<float> moment1(f.master.size()), moment2(f.master.size());
    OptimizerArgs args;
    args.master = f.master.data();
    args.gradient = f.gradient.data();
    args.moment1 = moment1.data();
    args.moment2 = moment2.data();
    args.state = &f.state;
    f.state.learning_rate = c["adamw_rate"];
    // An element whose gradient is rounding noise moves as far as any other: its sign decides.
    for (std::size_t step = 0; step < c["adamw_losses"].size(); ++step) {
      const double expected = c["adamw_losses"][step];
      EXPECT_NEAR(f.run(), expected, 1e-4 * expected) << "loss " << step;
      optimizer->step(args);
    }
  }
}

// With the running statistics of the archive, without dropout and stochastic depth.
TEST_F(Pt2Parity, EvaluationsAreThoseOfPyTorch) {
  ASSERT_EQ(cases_.size(), 31u);
  for (const json& c : cases_) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const ModelSpec spec = spec_of(c);
    const ModelBatch batch = batch_of(c);
    Graph graph = build_model(spec, batch, DType::f32, Mode::infer);
    const ParameterLayout layout(graph);
    std::vector<float> master(std::size_t(layout.count)), running(std::size_t(layout.stats_count));
    fill_weights(spec, graph, layout, master.data(), running.data());
    CompiledGraph compiled = compile_graph(*cpu_.compute.backend, std::move(graph), -1);
    Device& device = *cpu_.compute.device;
    const Buffer arena(device, MemoryKind::device, compiled.plan.arena_bytes);
    const Buffer packed(device, MemoryKind::device, compiled.plan.packed_weight_bytes + 64);
    StepState state;
    state.row_weight = 1.0f / float(batch.rows);
    Program program(std::move(compiled), layout,
                    {.arena = arena.data(),
                     .packed_weights = packed.data(),
                     .master = master.data(),
                     .weights = master.data(),
                     .running = running.data(),
                     .state = &state});
    std::vector<std::uint8_t> x(std::size_t(batch.rows * batch.sample.count()) * size_of(batch.x_dtype));
    std::vector<std::int32_t> y(std::size_t(batch.rows * batch.target.count()));
    std::vector<std::int64_t> ids(std::size_t(batch.rows));
    fill_batch(c, x, y);
    program.repack_weights();
    const Graph& g = program.graph();
    program.forward({x.data(), batch.x_dtype, g.values[Graph::x].shape},
                    {y.data(), DType::i32, g.values[Graph::y].shape}, {ids.data(), DType::i64, {g.rows}}, true);
    expect_logits(program, c["evaluated"]);
  }
}

}  // namespace pt2_parity_test
}  // namespace millrace
