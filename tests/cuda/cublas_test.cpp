// The choice of an algorithm of cuBLASLt for a multiplication, and the arguments that the library receives. The
// heuristics, the check and the multiplication are fakes, because the library needs a GPU for them. Descriptors are
// those of the library.
#include "cuda/dnn/cublas.hpp"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include "millrace/base/error.hpp"
#include "millrace/comm/world.hpp"
#include "support/host/cublas.hpp"
#include "support/host/epilogue.hpp"

namespace {

// The algorithms that the fake library proposes, best first. A number identifies an algorithm and determines its
// workspace; it is the first number of the algorithm's data. Each rank (thread) has its own library.
thread_local std::vector<std::uint64_t> offered;
thread_local bool confirms = true;
thread_local std::size_t more_scratch = 0;  // extra workspace that the check demands

std::size_t scratch_of(const cublasLtMatmulAlgo_t& algorithm) { return algorithm.data[0] * 256; }

template <class T>
T of(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t what) {
  T value{};
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(product, what, &value, sizeof value, &written), CUBLAS_STATUS_SUCCESS);
  return value;
}

std::int64_t of(cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t what) {
  std::int64_t value = 0;  // rows and columns have 64 bits, like strides
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatrixLayoutGetAttribute(matrix, what, &value, sizeof value, &written), CUBLAS_STATUS_SUCCESS);
  return value;
}

}  // namespace

extern "C" {
cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&offered);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                                           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                           cublasLtMatmulPreference_t, int max_results,
                                                           cublasLtMatmulHeuristicResult_t results[], int* count) {
  // #lizard forgives: the signature is that of the library
  for (*count = 0; *count < max_results && *count < int(offered.size()); ++*count) {
    cublasLtMatmulHeuristicResult_t& r = results[*count];
    r = {};
    r.algo.data[0] = offered[std::size_t(*count)];
    r.algo.data[7] = ~r.algo.data[0];
    r.workspaceSize = scratch_of(r.algo);
  }
  return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                                    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                    cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulHeuristicResult_t* result) {
  // #lizard forgives: the signature is that of the library
  if (!confirms || algorithm->data[7] != ~algorithm->data[0]) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = scratch_of(*algorithm) + more_scratch;
  return CUBLAS_STATUS_SUCCESS;
}

// Multiplies float32 matrices as the descriptors say, and checks that the descriptors obey the rules of cuBLAS.
cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                                           const void* a, cublasLtMatrixLayout_t of_a, const void* b,
                                           cublasLtMatrixLayout_t of_b, const void* beta, const void* c,
                                           cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t of_d,
                                           const cublasLtMatmulAlgo_t*, void* workspace, std::size_t, cudaStream_t) {
  // #lizard forgives: the signature is that of the library
  using namespace millrace;
  cuda::MatmulSpec s;
  s.m = of(of_d, CUBLASLT_MATRIX_LAYOUT_ROWS);
  s.n = of(of_d, CUBLASLT_MATRIX_LAYOUT_COLS);
  s.transpose_a = of<std::int32_t>(product, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  s.transpose_b = of<std::int32_t>(product, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  const auto epilogue = millrace::test::epilogue_from(of<cublasLtEpilogue_t>(product, CUBLASLT_MATMUL_DESC_EPILOGUE));
  EXPECT_TRUE(epilogue);
  s.epilogue = epilogue.value_or(millrace::cuda::Epilogue::none);
  s.k = of(of_a, s.transpose_a ? CUBLASLT_MATRIX_LAYOUT_ROWS : CUBLASLT_MATRIX_LAYOUT_COLS);
  EXPECT_EQ(of(of_b, s.transpose_b ? CUBLASLT_MATRIX_LAYOUT_COLS : CUBLASLT_MATRIX_LAYOUT_ROWS), s.k);
  EXPECT_EQ(of(of_d, CUBLASLT_MATRIX_LAYOUT_LD), s.m);
  EXPECT_EQ(c, d);
  EXPECT_EQ(*static_cast<const float*>(alpha), 1);
  cuda::MatmulArgs x{.a = a, .b = b, .d = d, .workspace = workspace, .beta = *static_cast<const float*>(beta)};
  x.bias = of<void*>(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  x.aux = of<void*>(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  EXPECT_TRUE(!x.bias || of<std::int32_t>(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) == CUDA_R_32F);
  if (x.aux) {
    const std::int64_t stride = of<std::int64_t>(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
    EXPECT_EQ(stride % (cuda::aux_of(s.epilogue) == cuda::Aux::bits ? 128 : 8), 0);
    EXPECT_GE(stride, s.m);
    EXPECT_EQ(stride, cuda::aux_stride(s.epilogue, s.m)) << "the rest of the backend assumes this stride";
  }
  test::HostMatmul(s).run(nullptr, x);
  return CUBLAS_STATUS_SUCCESS;
}
}

namespace millrace {
namespace {

using namespace cuda;

constexpr std::uint64_t large = 0xfedcba9876543210;  // all 64 bits must survive
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

struct ProductChoice : ::testing::Test {
  ProductChoice() {
    offered = {7, 9};
    confirms = true;
    more_scratch = 0;
  }
  const PlanSelectorOptions first{.autotune = false};
};

TEST_F(ProductChoice, IsThatOfRankZeroOnEveryRank) {
  run_thread_world(3, [](World& world) {
    PlanSelectorOptions options{.autotune = false, .rank = world.rank()};
    options.broadcast = [&](const std::string& text) { return world.broadcast_string(text); };
    PlanSelector choices("equal devices", "", options);
    offered = {std::uint64_t(10 + world.rank()), large};
    EXPECT_EQ(scratch(choices, plain), 10u * 256) << world.rank();
    offered = {large, std::uint64_t(10 + world.rank())};
    EXPECT_EQ(scratch(choices, plain), 10u * 256) << world.rank();
    EXPECT_EQ(scratch(choices, with(Epilogue::bias)), std::size_t(large * 256)) << world.rank();
    if (world.rank() == 0) offered.clear();
    EXPECT_EQ(scratch(choices, with(Epilogue::relu)), 0u) << "no rank has an algorithm if rank 0 has none";
  });
}

TEST_F(ProductChoice, IsCachedByAllPropertiesOfTheMultiplication) {
  PlanSelector choices("a device", "", first);
  EXPECT_EQ(scratch(choices, plain), 7u * 256);
  offered = {9};
  EXPECT_EQ(scratch(choices, plain), 7u * 256);
  for (const auto change : {+[](MatmulSpec& s) { s.transpose_a = true; }, +[](MatmulSpec& s) { s.transpose_b = true; },
                            +[](MatmulSpec& s) { s.k = 17; }, +[](MatmulSpec& s) { s.output = DType::f16; },
                            +[](MatmulSpec& s) { s.input = DType::bf16; }}) {
    MatmulSpec other = plain;
    change(other);
    EXPECT_EQ(scratch(choices, other), 9u * 256) << str(other);
  }
}

TEST_F(ProductChoice, AnAlgorithmThatTheCheckRejectsIsReplacedByTheFirstProposal) {
  PlanSelector choices("a device", "", first);
  EXPECT_EQ(scratch(choices, plain), 7u * 256);
  offered = {9};
  EXPECT_EQ(scratch(choices, plain), 7u * 256);
  more_scratch = 1;
  EXPECT_EQ(scratch(choices, plain), 9u * 256) << "the memory plan relies on the workspace in the cache";
  more_scratch = 0;
  confirms = false;
  EXPECT_EQ(scratch(choices, plain), 9u * 256);
  confirms = true;
  const auto known = choices.cache().entries();
  for (const char* text : {"", "{}", "[1]", "{\"algorithm\":[1,2],\"workspace\":1}"})
    for (const auto& [key, entry] : known) {
      choices.cache().insert(key, {text, 0});
      EXPECT_EQ(scratch(choices, plain), *text ? 9u * 256 : 0u) << text;
    }
}

// All arrays that a multiplication reads or writes, always with the same contents.
struct Arrays {
  std::vector<float> a, b, d, bias, aux, workspace = std::vector<float>(1000);
  explicit Arrays(const MatmulSpec& s) {
    std::uint32_t state = 1;
    const auto fill = [&](std::vector<float>& v, std::int64_t count) {
      v.resize(std::size_t(count));
      for (float& x : v) x = float((state = state * 1664525u + 1013904223u) >> 8) / float(1 << 23) - 1;
    };
    fill(a, s.m * s.k);
    fill(b, s.k * s.n);
    fill(d, s.m * s.n);
    fill(bias, std::max(s.m, s.n));
    fill(aux, std::int64_t(aux_bytes(s) / sizeof(float)));
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
TEST_F(ProductChoice, PassesTheEpilogueToTheLibrary) {
  PlanSelector choices("a device", "", first);
  const auto cublas = make_cublas(LaunchContext{}, choices);
  for (int e = 0; e <= int(Epilogue::bias_grad); ++e)
    for (const float beta : {0.0f, 1.0f}) {
      const MatmulSpec s{24, 5, 7, beta == 0, beta != 0, DType::f32, DType::f32, Epilogue(e)};
      Arrays found(s), expected(s);
      cublas->find(s)->run(nullptr, found.args(s, beta));
      test::HostMatmul(s).run(nullptr, expected.args(s, beta));
      EXPECT_EQ(found.d, expected.d) << str(s);
      EXPECT_EQ(found.bias, expected.bias) << str(s);
      EXPECT_EQ(std::memcmp(found.aux.data(), expected.aux.data(), aux_bytes(s)), 0) << str(s);
    }
}

}  // namespace
}  // namespace millrace
