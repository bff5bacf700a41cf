// What src/cuda asks of cuBLASLt, and the rules of the simulated cuBLASLt.
#include "simulated_cuda/cublas.hpp"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/dnn/cublas.hpp"
#include "cuda/dnn/cublas_matmul.hpp"
#include "millrace/comm/world.hpp"
#include "simulated_cuda/rules.hpp"
#include "support/host/cublas.hpp"

namespace millrace {
namespace cublas_test {

using namespace cuda;

const MatmulSpec plain{64, 32, 16, false, false, DType::f16, DType::f32, Epilogue::none};
MatmulSpec with(Epilogue e) {
  MatmulSpec s = plain;
  s.epilogue = e;
  return s;
}

// The workspace of the chosen algorithm, which identifies it; 0: none was found.
std::size_t scratch(PlanSelector& choices, const MatmulSpec& spec) {
  const auto product = make_cublas(LaunchContext{}, choices)->find(spec);
  return product ? product->workspace_bytes() : 0;
}

std::vector<std::uint64_t>& offered() { return simulated::cublas_offers().workspaces; }

struct SimulatedCublas : ::testing::Test {
  SimulatedCublas() {
    cudaSetDevice(0);
    simulated::cublas_offers() = {};
    offered() = {700, 900};
  }
  ~SimulatedCublas() override { simulated::cublas_offers() = {}; }
  const PlanSelectorOptions first{.autotune = false};
};

TEST_F(SimulatedCublas, IsThatOfRankZeroOnEveryRank) {
  run_thread_world(3, [](World& world) {
    PlanSelectorOptions options{.autotune = false, .rank = world.rank()};
    options.broadcast = [&](const std::string& text) { return world.broadcast_string(text); };
    PlanSelector choices("equal devices", "", options);
    cudaSetDevice(0);
    offered() = {std::uint64_t(10 + world.rank()), 900};
    EXPECT_EQ(scratch(choices, plain), 10u) << world.rank();
    offered() = {900, std::uint64_t(10 + world.rank())};
    EXPECT_EQ(scratch(choices, plain), 10u) << world.rank();
    EXPECT_EQ(scratch(choices, with(Epilogue::bias)), 900u) << world.rank();
    if (world.rank() == 0) offered().clear();
    EXPECT_EQ(scratch(choices, with(Epilogue::relu)), 0u) << "no rank has an algorithm if rank 0 has none";
  });
}

TEST_F(SimulatedCublas, IsCachedByAllPropertiesOfTheMultiplication) {
  PlanSelector choices("a device", "", first);
  EXPECT_EQ(scratch(choices, plain), 700u);
  offered() = {900};
  EXPECT_EQ(scratch(choices, plain), 700u);
  for (const auto change : {+[](MatmulSpec& s) { s.transpose_a = true; }, +[](MatmulSpec& s) { s.transpose_b = true; },
                            +[](MatmulSpec& s) { s.k = 17; }, +[](MatmulSpec& s) { s.output = DType::f16; },
                            +[](MatmulSpec& s) { s.input = DType::bf16; }, +[](MatmulSpec& s) { s.batch = 3; }}) {
    MatmulSpec other = plain;
    change(other);
    EXPECT_EQ(scratch(choices, other), 900u) << str(other);
  }
}

TEST_F(SimulatedCublas, AnAlgorithmThatTheCheckRejectsIsReplacedByTheFirstProposal) {
  PlanSelector choices("a device", "", first);
  EXPECT_EQ(scratch(choices, plain), 700u);
  offered() = {900};
  EXPECT_EQ(scratch(choices, plain), 700u);
  simulated::cublas_offers().more_workspace = 1;
  EXPECT_EQ(scratch(choices, plain), 900u) << "the memory plan relies on the workspace in the cache";
  simulated::cublas_offers().more_workspace = 0;
  simulated::cublas_offers().confirms = false;
  EXPECT_EQ(scratch(choices, plain), 900u);
  simulated::cublas_offers().confirms = true;
  const auto known = choices.cache().entries();
  for (const char* text : {"", "{}", "[1]", "{\"algorithm\":[1,2],\"workspace\":1}"})
    for (const auto& [key, entry] : known) {
      choices.cache().insert(key, {text, 0});
      EXPECT_EQ(scratch(choices, plain), *text ? 900u : 0u) << text;
    }
}

// Page-locked memory, which the GPU can access.
template <class T>
class Pinned {
 public:
  explicit Pinned(std::int64_t count) : count_(std::size_t(count)) {
    void* p = nullptr;
    EXPECT_EQ(cudaHostAlloc(&p, std::max<std::size_t>(count_, 1) * sizeof(T), 0), cudaSuccess);
    data_ = static_cast<T*>(p);
  }
  ~Pinned() { EXPECT_EQ(cudaFreeHost(data_), cudaSuccess); }
  Pinned(const Pinned&) = delete;
  T* data() const { return data_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

// All arrays that a multiplication reads or writes, always with the same contents.
struct Arrays {
  Pinned<float> a, b, d, bias, aux, workspace;
  explicit Arrays(const MatmulSpec& s)
      : a(s.m * s.k),
        b(s.k * s.n),
        d(s.m * s.n),
        bias(std::max(s.m, s.n)),
        aux(std::int64_t(aux_bytes(s) / sizeof(float))),
        workspace(1000) {
    std::uint32_t state = 1;
    for (auto* array : {&a, &b, &d, &bias, &aux})
      for (float& x : *array) x = float((state = state * 1664525u + 1013904223u) >> 8) / float(1 << 23) - 1;
  }
  MatmulArgs args(const MatmulSpec& s, float beta) {
    return {.a = a.data(),
            .b = b.data(),
            .d = d.data(),
            .bias = has_bias(s.epilogue) ? bias.data() : nullptr,
            .aux = aux_of(s.epilogue) != Aux::none ? aux.data() : nullptr,
            .workspace = workspace.data(),
            .beta = beta};
  }
};

// With the arguments that it receives, the library computes what MatmulSpec describes: epilogue, bias, aux with its
// stride, and beta.
TEST_F(SimulatedCublas, GetsTheEpilogue) {
  PlanSelector choices("a device", "", first);
  const auto cublas = make_cublas(LaunchContext{}, choices);
  for (int e = 0; e <= int(Epilogue::bias_grad); ++e)
    for (const float beta : {0.0f, 1.0f}) {
      const MatmulSpec s{24, 5, 7, beta == 0, beta != 0, DType::f32, DType::f32, Epilogue(e)};
      Arrays found(s), expected(s);
      cublas->find(s)->run(nullptr, found.args(s, beta));
      EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
      test::HostMatmul(s).run(nullptr, expected.args(s, beta));
      for (const auto& [one, other] :
           {std::pair(&found.d, &expected.d), {&found.bias, &expected.bias}, {&found.aux, &expected.aux}})
        EXPECT_TRUE(std::equal(one->begin(), one->end(), other->begin())) << str(s);
    }
}

// Matrices of 5 x 5 floats, of which only the first is aligned to 16 bytes.
TEST_F(SimulatedCublas, GetsTheMatricesOfABatch) {
  PlanSelector choices("a device", "", first);
  const auto cublas = make_cublas(LaunchContext{}, choices);
  for (const bool turned : {false, true}) {
    const MatmulSpec s{.m = 5, .n = 5, .k = 7, .transpose_a = turned, .transpose_b = !turned, .batch = 6};
    MatmulSpec all = s;  // of arrays for the whole batch
    all.m *= s.batch;
    all.n *= s.batch;
    Arrays found(all), expected(all);
    cublas->find(s)->run(nullptr, found.args(s, 0));
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    test::HostMatmul(s).run(nullptr, expected.args(s, 0));
    EXPECT_TRUE(std::equal(found.d.begin(), found.d.end(), expected.d.begin())) << str(s);
  }
}

// ---- the rules of the library ----

// A product with its arguments, which a test makes wrong. Without a change it runs.
struct Product {
  static constexpr MatmulSpec spec{64, 32, 16, false, false, DType::f32, DType::f32, Epilogue::bias};
  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  Arrays arrays{spec};
  MatmulArgs args = arrays.args(spec, 0);
  std::unique_ptr<CublasMatmul> matmul;
  MatmulAlgorithm algorithm;

  Product() {
    cublasLtCreate(&handle);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    matmul = std::make_unique<CublasMatmul>(handle, spec, false);
    algorithm = matmul->candidates(1 << 20).front();
  }
  cublasStatus_t run() { return matmul->enqueue(stream, algorithm, args); }
  // The matrix A with this leading dimension.
  cublasStatus_t run_with_stride(std::int64_t stride) {
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 64, 16, stride);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 16, 32, 16);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 64, 32, 64);
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, description, &one, args.a, a, args.b, b, &zero, args.d, d, args.d, d,
                          &algorithm.algorithm, args.workspace, algorithm.workspace, stream);
  }
};

TEST_F(SimulatedCublas, RunsAProductThatObeysTheRules) {
  Product p;
  EXPECT_EQ(p.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(p.stream), cudaSuccess);
}

TEST_F(SimulatedCublas, RefusesWhatTheDocumentationForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto broken = [](const std::function<void(Product&)>& change) {
    Product p;
    change(p);
    p.run();
    cudaStreamSynchronize(p.stream);
  };
  const auto shifted = [](const auto* p) {
    return const_cast<void*>(static_cast<const void*>(static_cast<const char*>(static_cast<const void*>(p)) + 4));
  };
  EXPECT_VIOLATION(broken([&](Product& p) { p.args.a = shifted(p.args.a); }),
                   "cublasLtMatmul on stream .*: A at .* is not aligned to 16 bytes");
  EXPECT_VIOLATION(broken([&](Product& p) { p.args.b = shifted(p.args.b); }), "B at .* is not aligned to 16 bytes");
  EXPECT_VIOLATION(broken([&](Product& p) { p.args.d = shifted(p.args.d); }), "D at .* is not aligned to 16 bytes");
  EXPECT_VIOLATION(broken([&](Product& p) { p.args.bias = shifted(p.args.bias); }), "bias at .* is not aligned");
  EXPECT_VIOLATION(broken([&](Product& p) { p.args.workspace = shifted(p.args.workspace); }),
                   "the workspace at .* is not aligned");
  EXPECT_VIOLATION(broken([](Product& p) { --p.algorithm.workspace; }),
                   "a workspace of 699 bytes, the algorithm needs 700");
  EXPECT_VIOLATION(broken([](Product& p) { p.args.a = p.handle; }), "are not in one allocation");
  EXPECT_VIOLATION(broken([](Product& p) { p.algorithm.algorithm.data[0] = 0; }), "not one of the heuristics");
  EXPECT_VIOLATION(broken([](Product& p) {
                     MatmulSpec other = Product::spec;
                     other.k = 24;
                     p.algorithm = CublasMatmul(p.handle, other, false).candidates(1 << 20).front();
                   }),
                   "the algorithm was found for another problem");
  EXPECT_VIOLATION(Product().run_with_stride(60), "a leading dimension of 60 for 64 rows");
  EXPECT_VIOLATION(broken([](Product& p) {
                     cudaSetDevice(1);
                     cudaStreamCreateWithFlags(&p.stream, cudaStreamNonBlocking);
                   }),
                   "the handle belongs to GPU 0, the thread uses GPU 1");
  EXPECT_VIOLATION(broken([](Product&) { cudaSetDevice(1); }), "the stream belongs to GPU 0");
  EXPECT_VIOLATION(broken([](Product& p) { cublasLtDestroy(p.handle); }), "the handle does not exist");
  EXPECT_VIOLATION(broken([](Product& p) {
                     cudaStreamBeginCapture(p.stream, cudaStreamCaptureModeThreadLocal);
                     cublasLtHandle_t second = nullptr;
                     cublasLtCreate(&second);
                   }),
                   "cublasLtCreate: is not allowed while this thread captures");
}

}  // namespace cublas_test
}  // namespace millrace
