// Which of cuBLASLt's algorithms a product gets: its heuristics and its check are pretended here, since the library
// answers nothing without a GPU.
#include "../../src/cuda/cublas.hpp"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include "millrace/base/error.hpp"
#include "millrace/comm/world.hpp"

namespace {

// By what their data begins with, best first; each needs as much scratch as it says. One library a rank.
thread_local std::vector<std::uint64_t> offered;
thread_local bool confirms = true;
thread_local std::size_t more_scratch = 0;  // at the check

std::size_t scratch_of(const cublasLtMatmulAlgo_t& algorithm) { return algorithm.data[0] * 256; }

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
                                                           cublasLtMatmulPreference_t, int most,
                                                           cublasLtMatmulHeuristicResult_t results[], int* count) {
  for (*count = 0; *count < most && *count < int(offered.size()); ++*count) {
    cublasLtMatmulHeuristicResult_t& r = results[*count];
    r = {};
    r.algo.data[0] = offered[std::size_t(*count)], r.algo.data[7] = ~r.algo.data[0];
    r.workspaceSize = scratch_of(r.algo);
  }
  return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                                    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                    cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulHeuristicResult_t* result) {
  if (!confirms || algorithm->data[7] != ~algorithm->data[0]) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = scratch_of(*algorithm) + more_scratch;
  return CUBLAS_STATUS_SUCCESS;
}
}

namespace millrace {
namespace {

using namespace cuda;

constexpr std::uint64_t large = 0xfedcba9876543210;  // of 64 bits all travel
const MatmulSpec plain{64, 32, 16, false, false, DType::f16, DType::f32, Epilogue::none};
MatmulSpec with(Epilogue e) {
  MatmulSpec s = plain;
  s.epilogue = e;
  return s;
}

// Scratch tells which algorithm it is; 0: none.
std::size_t scratch(PlanChoices& choices, const MatmulSpec& spec) {
  const auto product = make_cublas(Context{}, choices)->find(spec);
  return product ? product->workspace_bytes() : 0;
}

struct ProductChoice : ::testing::Test {
  ProductChoice() { offered = {7, 9}, confirms = true, more_scratch = 0; }
  const ChoiceOptions first{.tune = false};
};

TEST_F(ProductChoice, IsRankZerosOnEveryRank) {
  run_thread_world(3, [](World& world) {
    ChoiceOptions options{.tune = false, .rank = world.rank()};
    options.broadcast = [&](const std::string& text) { return world.broadcast_string(text); };
    PlanChoices choices("equal devices", "", options);
    offered = {std::uint64_t(10 + world.rank()), large};
    EXPECT_EQ(scratch(choices, plain), 10u * 256) << world.rank();
    offered = {large, std::uint64_t(10 + world.rank())};
    EXPECT_EQ(scratch(choices, plain), 10u * 256) << world.rank();
    EXPECT_EQ(scratch(choices, with(Epilogue::bias)), std::size_t(large * 256)) << world.rank();
    if (world.rank() == 0) offered.clear();
    EXPECT_EQ(scratch(choices, with(Epilogue::relu)), 0u) << "none where rank 0 has none";
  });
}

TEST_F(ProductChoice, IsRememberedByTheWholeProduct) {
  PlanChoices choices("a device", "", first);
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

TEST_F(ProductChoice, ThatIsNotConfirmedGivesWayToCublassOwn) {
  PlanChoices choices("a device", "", first);
  EXPECT_EQ(scratch(choices, plain), 7u * 256);
  offered = {9};
  EXPECT_EQ(scratch(choices, plain), 7u * 256);
  more_scratch = 1;
  EXPECT_EQ(scratch(choices, plain), 9u * 256) << "the plan of memory counts on what was said";
  more_scratch = 0, confirms = false;
  EXPECT_EQ(scratch(choices, plain), 9u * 256);
  confirms = true;
  const auto known = choices.cache().entries();
  for (const char* text : {"", "{}", "[1]", "{\"algorithm\":[1,2],\"workspace\":1}"})
    for (const auto& [key, entry] : known) {
      choices.cache().insert(key, {text, 0});
      EXPECT_EQ(scratch(choices, plain), *text ? 9u * 256 : 0u) << text;
    }
}

}  // namespace
}  // namespace millrace
