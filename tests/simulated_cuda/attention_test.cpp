// Attention with cuDNN: when it is used, and what its two graphs of the gradients compute.
#include "cuda/dnn/attention.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "cuda/dnn/attention_graph.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "reference/attention.hpp"
#include "support/device_values.hpp"

namespace millrace::cuda {
namespace attention_test {

using test::random_values, test::Values;

cudaStream_t stream() {
  static cudaStream_t const made = [] {
    cudaStream_t s = nullptr;
    cudaSetDevice(0);
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    return s;
  }();
  return made;
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  EXPECT_EQ(cudaMemcpyAsync(to, from, bytes, kind, stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
}

AttentionSpec spec_of(std::int64_t size, DType dtype, std::int64_t key_heads = 2) {
  return {{2, 9, (4 + 2 * key_heads) * size}, 4, key_heads, true, dtype, Mode::train};
}

// A tensor in memory of the GPU.
struct Memory {
  explicit Memory(std::size_t bytes) : bytes(bytes) {
    EXPECT_EQ(cudaMalloc(&data, bytes + 256), cudaSuccess);
    const std::vector<char> garbage(bytes, char(0xff));
    copy(data, garbage.data(), bytes, cudaMemcpyHostToDevice);
  }
  Memory(const Values& values, const Shape& shape) : Memory(values.size() * sizeof(bf16)) {
    std::vector<bf16> narrow;
    for (const double v : values) narrow.push_back(bf16(float(v)));
    copy(data, narrow.data(), bytes, cudaMemcpyHostToDevice);
    tensor = {data, DType::bf16, shape};
  }
  explicit Memory(const Shape& shape) : Memory(std::size_t(shape.count()) * sizeof(bf16)) {
    tensor = {data, DType::bf16, shape};
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data); }
  Values values() const {
    std::vector<bf16> narrow(bytes / sizeof(bf16));
    copy(narrow.data(), data, bytes, cudaMemcpyDeviceToHost);
    Values out;
    for (const bf16 v : narrow) out.push_back(float(v));
    return out;
  }
  std::size_t bytes;
  void* data = nullptr;
  Tensor tensor;
};

struct Library {
  explicit Library(const cudnn::PlanRules& rules = {}, int compute_capability = 90) {
    options.choices.autotune = false;
    options.rules = rules;
    options.compute_capability = compute_capability;
    cudnn = std::make_unique<cudnn::Cudnn>(context, options);
  }
  std::unique_ptr<Op> make(const AttentionSpec& s) { return make_attention(s, context, *cudnn); }
  PlanEntry entry(const cudnn::AttentionProblem& p) {
    cudnn->choose(p);
    return *cudnn->choices().cache().find(key(p));
  }
  void know(const cudnn::AttentionProblem& p, double seconds) {
    PlanEntry entry = this->entry(p);
    entry.seconds = seconds;
    cudnn->choices().cache().insert(key(p), entry);
  }
  std::string key(const cudnn::AttentionProblem& p) const {
    return fmt::format("{} {} untimed", p.key(), options.rules.key());
  }
  LaunchContext context{stream(), 4};
  cudnn::Options options;
  std::unique_ptr<cudnn::Cudnn> cudnn;
};

void expect_close(const Values& actual, const Values& expected, const std::string& what) {
  double largest = 0, worst = 0;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_FALSE(std::isnan(actual[i])) << what << " " << i;
    worst = std::max(worst, std::abs(actual[i] - expected[i]));
  }
  EXPECT_LE(worst, 1e-2 * largest) << what;
}

// Which probabilities are kept, as in attention_test.cpp.
auto dropout_of(Op& op, const AttentionSpec& s, OpArgs args) {
  const std::int64_t positions = s.positions(), size = s.head_size();
  Values unit(std::size_t(s.src.count()));
  for (std::int64_t at = 0; at < s.src[0] * positions; ++at)
    for (std::int64_t head = s.heads + s.key_heads; head < s.heads + 2 * s.key_heads; ++head)
      unit[std::size_t(at * s.src[-1] + head * size + at % positions)] = 1;
  const Memory src(unit, s.src);
  args.src[0] = src.tensor;
  op.forward(args);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  Memory dst(s.dst());
  copy(dst.data, args.dst.data, dst.bytes, cudaMemcpyDeviceToDevice);
  return [=, y = dst.values()](int row, int head, int query, int key) {
    return y[std::size_t(((row * positions + query) * s.heads + head) * size + key)] > 0;
  };
}

// As cases of attention_test.cpp, with memory that the host cannot reach. With dropout: returns the probabilities that
// are kept in the first head of the first row and of the last one.
std::array<std::vector<bool>, 2> expect_reference(Op& op, const AttentionSpec& s, std::uint64_t step = 7) {
  const Memory src(random_values(s.src.count(), 1, 2), s.src), diff_dst(random_values(s.dst().count(), 2), s.dst());
  const Memory dst(s.dst()), diff_src(s.src);
  const MemoryRequirements needs = op.memory_requirements();
  const Memory workspace(needs.workspace), saved(needs.saved);
  OpArgs args;
  args.src[0] = src.tensor;
  args.dst = dst.tensor;
  args.diff_dst = diff_dst.tensor;
  args.diff_src[0] = diff_src.tensor;
  args.workspace = workspace.data;
  args.saved = saved.data;
  const std::vector<std::int64_t> ids{41, 5};
  StepState state;
  state.rng_step = step;
  const Memory on_device(ids.size() * sizeof ids[0]), state_on_device(sizeof state);
  copy(on_device.data, ids.data(), on_device.bytes, cudaMemcpyHostToDevice);
  copy(state_on_device.data, &state, sizeof state, cudaMemcpyHostToDevice);
  args.src[1] = {on_device.data, DType::i64, {s.src[0]}};
  args.state = static_cast<StepState*>(state_on_device.data);
  reference::AttentionExtras extras;
  if (s.drops()) extras.keeps = dropout_of(op, s, args);
  op.forward(args);
  op.backward(args);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  const auto expected = reference::attention(s, src.values(), diff_dst.values(), extras);
  expect_close(dst.values(), expected.dst, "dst");
  expect_close(diff_src.values(), expected.diff_src, "gradient");
  std::array<std::vector<bool>, 2> kept;
  for (int last = 0; s.drops() && last < 2; ++last)
    for (int query = 0; query < 9; ++query)
      for (int key = 0; key <= query; ++key)
        kept[std::size_t(last)].push_back(extras.keeps(last * int(s.src[0] - 1), 0, query, key));
  return kept;
}

const std::string adding = "cudnn eng0, backward eng0 adding up gradients of queries";
const std::string product = "cudnn eng0, backward eng0";

TEST(CudnnAttention, IsUsedForTheTypesAndHeadSizesThatCudnnSupports) {
  Library library;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const std::int64_t size : {8, 64, 256})
      EXPECT_EQ(library.make(spec_of(size, dtype))->implementation(), adding) << size;
  for (const auto& [dtype, size] : {std::pair(DType::f32, 64), {DType::bf16, 12}, {DType::f16, 264}})
    EXPECT_EQ(library.make(spec_of(size, dtype))->implementation(), "kernels") << size;
  AttentionSpec one = spec_of(8, DType::bf16);
  one.src[1] = 1;
  EXPECT_EQ(library.make(one)->implementation(), "kernels") << "one position";
}

TEST(CudnnAttention, TheFasterGraphOfTheGradientsIsUsed) {
  const AttentionSpec s = spec_of(16, DType::bf16);
  const auto made = [&](double seconds_of_adding, const cudnn::PlanRules& rules = {}) {
    Library library(rules);
    library.know({s, true, false}, 1e-6);
    library.know({s, true, true}, seconds_of_adding);
    const auto op = library.make(s);
    expect_reference(*op, s);
    return op->implementation();
  };
  EXPECT_EQ(made(0.9e-6), adding);
  EXPECT_EQ(made(1.1e-6), product);
  EXPECT_EQ(made(0), adding) << "not timed";
  EXPECT_EQ(made(0.9e-6, {.deterministic = true}), product) << "the order of additions differs from run to run";
}

// The product's engines store 4 x 64 x 128 scores of 2 bytes for each row of the batch.
TEST(CudnnAttention, TheProductTakesTheRowsThatLeaveRoomForScores) {
  const AttentionSpec s = spec_of(16, DType::bf16);
  const std::size_t of_row = 4 * 64 * 128 * 2;
  const auto made = [&](std::size_t limit, int compute_capability = 90) {
    Library library({.workspace_limit = limit, .deterministic = true}, compute_capability);
    const auto op = library.make(s);
    expect_reference(*op, s);
    return op->implementation();
  };
  EXPECT_EQ(made(2 * of_row), product);
  EXPECT_EQ(made(2 * of_row - 1), product + " in 2 parts");
  testing::internal::CaptureStderr();
  EXPECT_EQ(made(of_row - 1), "cudnn eng0, backward kernels");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("run.deterministic = off or raise cuda.workspace"),
            std::string::npos);
  EXPECT_EQ(made(2 * of_row, 100), "cudnn eng0, backward kernels") << "not deterministic there";
}

TEST(CudnnAttention, BothGraphsAddUpKeysOverTheQueriesThatShareThem) {
  for (const std::int64_t key_heads : {1, 4})
    for (const bool deterministic : {false, true}) {
      const AttentionSpec s = spec_of(8, DType::bf16, key_heads);
      Library library({.deterministic = deterministic});
      const auto op = library.make(s);
      EXPECT_EQ(op->implementation(), deterministic ? product : adding);
      expect_reference(*op, s);
    }
}

// Forward then takes the rows in the same parts as backward, each with a seed of its own.
TEST(CudnnAttention, DropoutIsTheSameInBothDirections) {
  AttentionSpec s = spec_of(16, DType::bf16);
  s.dropout = 0.4f;
  const std::size_t of_row = 4 * 64 * 128 * 2;
  for (const auto& [rules, expected] : {std::pair(cudnn::PlanRules{}, adding),
                                        {cudnn::PlanRules{.deterministic = true}, product},
                                        {cudnn::PlanRules{.workspace_limit = of_row, .deterministic = true},
                                         std::string("cudnn eng0 in 2 parts, backward eng0 in 2 parts")}}) {
    Library library(rules);
    const auto op = library.make(s);
    EXPECT_EQ(op->implementation(), expected);
    const auto kept = expect_reference(*op, s), again = expect_reference(*op, s), later = expect_reference(*op, s, 8);
    EXPECT_EQ(kept, again);
    EXPECT_NE(kept, later) << "another step";
    EXPECT_NE(kept[0], kept[1]) << "another row";
  }
  testing::internal::CaptureStderr();
  Library without_room({.workspace_limit = of_row - 1, .deterministic = true});
  EXPECT_EQ(without_room.make(s)->implementation(), "kernels") << "which drop others than cuDNN";
  testing::internal::GetCapturedStderr();
  s.mode = Mode::infer;
  EXPECT_EQ(Library().make(s)->implementation(), "cudnn eng0");
}

TEST(CudnnAttention, EqualOperationsShareAPlan) {
  Library library;
  const cudnn::AttentionProblem problem{spec_of(16, DType::bf16)};
  EXPECT_EQ(library.cudnn->choose(problem)->plan, library.cudnn->choose(problem)->plan);
}

TEST(CudnnAttention, KernelsTakeThePlaceOfAMissingEngineWithOneWarning) {
  const AttentionSpec s = spec_of(16, DType::bf16);
  Library library;
  library.cudnn->choices().cache().insert(library.key({s}), {});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(library.make(s)->implementation(), "kernels");
  const std::string said = testing::internal::GetCapturedStderr();
  const auto at = said.find("has no engine for attention with heads of 16 in bf16");
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("warning", at), std::string::npos) << said;
}

}  // namespace attention_test
}  // namespace millrace::cuda
