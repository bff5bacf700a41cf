// A simulated cuBLASLt. Descriptors, layouts and preferences are those of the real library, which makes them without a
// GPU. The heuristics propose pretended algorithms, and a multiplication is computed by loops on the host.
#include <cublasLt.h>
#include <fmt/core.h>

#include <cstring>
#include <optional>

#include "cuda/dnn/matmul.hpp"
#include "simulated_cuda/simulator.hpp"
#include "support/host/epilogue.hpp"
#include "support/host/product.hpp"

namespace millrace::simulated {
namespace {

using cuda::Epilogue;
using cuda::MatmulSpec;

// What the fields of cublasLtMatmulAlgo_t mean here.
enum Field { mark_field, id_field, workspace_field };
constexpr std::uint64_t mark = 0x73696d756c617465;
constexpr std::uint64_t workspaces[] = {4096, 0, 1 << 20};  // bytes that algorithm i needs

template <class T>
T of_description(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what) {
  T value{};
  std::size_t written = 0;
  if (cublasLtMatmulDescGetAttribute(d, what, &value, sizeof value, &written) != CUBLAS_STATUS_SUCCESS)
    violation("cublasLtMatmul", fmt::format("the description has no attribute {}", int(what)));
  return value;
}

struct Layout {
  DType type = DType::f32;
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::size_t bytes() const { return std::size_t(stride * columns) * size_of(type); }
};

DType type_of(std::uint32_t type) {
  if (type == CUDA_R_32F) return DType::f32;
  if (type == CUDA_R_16F) return DType::f16;
  if (type == CUDA_R_16BF) return DType::bf16;
  violation("cublasLtMatmul", fmt::format("type {} is not simulated", type));
}

Layout layout_of(cublasLtMatrixLayout_t l) {
  const auto get = [&](cublasLtMatrixLayoutAttribute_t what, auto value) {
    std::size_t written = 0;
    cublasLtMatrixLayoutGetAttribute(l, what, &value, sizeof value, &written);
    return value;
  };
  return {type_of(get(CUBLASLT_MATRIX_LAYOUT_TYPE, std::uint32_t{})),
          std::int64_t(get(CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{})),
          std::int64_t(get(CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{})),
          get(CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{})};
}

Epilogue epilogue_of(cublasLtMatmulDesc_t d) {
  const auto found = test::epilogue_from(of_description<cublasLtEpilogue_t>(d, CUBLASLT_MATMUL_DESC_EPILOGUE));
  if (!found) violation("cublasLtMatmul", "the epilogue is not simulated");
  return *found;
}

// nullopt: the sizes of the matrices contradict each other.
std::optional<MatmulSpec> spec_of(cublasLtMatmulDesc_t d, const Layout& a, const Layout& b, const Layout& out) {
  MatmulSpec s;
  s.transpose_a = of_description<std::int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  s.transpose_b = of_description<std::int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  s.m = s.transpose_a ? a.columns : a.rows;
  s.k = s.transpose_a ? a.rows : a.columns;
  s.n = s.transpose_b ? b.rows : b.columns;
  s.input = a.type;
  s.output = out.type;
  s.epilogue = epilogue_of(d);
  const bool fits = (s.transpose_b ? b.columns : b.rows) == s.k && out.rows == s.m && out.columns == s.n &&
                    b.type == a.type && a.stride == a.rows && b.stride == b.rows && out.stride == out.rows;
  return fits ? std::optional(s) : std::nullopt;
}

void check_pointer(cudaStream_t stream, const char* what, const void* p, std::size_t bytes) {
  const char* call = "cublasLtMatmul";
  // The alignment that the algorithms were asked for (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*); 16 bytes also for bias and
  // aux, as the library reads them in vectors.
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0)
    violation(call, stream, fmt::format("{} at {} is not aligned to 16 bytes", what, p));
  check_accessible_range(call, stream, p, bytes);
}

// The epilogue's pointers and types in the description; returns them in `args`.
void check_epilogue(cudaStream_t stream, cublasLtMatmulDesc_t d, const MatmulSpec& s, cuda::MatmulArgs& args) {
  if (cuda::has_bias(s.epilogue)) {
    args.bias = of_description<void*>(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
    const auto type = of_description<std::int32_t>(d, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
    if (type_of(std::uint32_t(type)) != s.output) violation("cublasLtMatmul", stream, "the bias has not the type of D");
    const std::int64_t values = s.epilogue == Epilogue::bias_grad ? s.n : s.m;
    check_pointer(stream, "bias", args.bias, std::size_t(values) * size_of(s.output));
  }
  if (cuda::aux_of(s.epilogue) == cuda::Aux::none) return;
  args.aux = of_description<void*>(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: divisible by 128 for ReLU's bits, by 8 for GELU's values.
  const auto stride = of_description<std::int64_t>(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
  const bool bits = cuda::aux_of(s.epilogue) == cuda::Aux::bits;
  if (stride < s.m || stride % (bits ? 128 : 8) != 0)
    violation("cublasLtMatmul", stream, fmt::format("a stride of aux of {} for {} rows", stride, s.m));
  if (stride != cuda::aux_stride(s.epilogue, s.m))
    violation("cublasLtMatmul", stream, "this stride of aux is not simulated");
  check_pointer(stream, "aux", args.aux, cuda::aux_bytes(s));
}

// Like the real library, it has no epilogues for some shapes.
bool supported(const MatmulSpec& s) { return s.epilogue == Epilogue::none || s.m % 8 == 0; }

}  // namespace
}  // namespace millrace::simulated

using namespace millrace;
using namespace millrace::simulated;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) {
  *out = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t* results, int* count) {
  std::uint64_t limit = 0;
  std::size_t written = 0;
  cublasLtMatmulPreferenceGetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit,
                                       &written);
  *count = 0;
  const auto spec = spec_of(d, layout_of(a), layout_of(b), layout_of(out));
  if (!spec) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(*spec)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (std::uint64_t id = 0; id < std::size(workspaces) && *count < wanted; ++id) {
    if (workspaces[id] > limit) continue;
    cublasLtMatmulHeuristicResult_t& r = results[(*count)++];
    r = {};
    r.state = CUBLAS_STATUS_SUCCESS;
    r.workspaceSize = workspaces[id];
    r.algo.data[mark_field] = mark;
    r.algo.data[id_field] = id;
    r.algo.data[workspace_field] = workspaces[id];
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t out,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  const auto spec = spec_of(d, layout_of(a), layout_of(b), layout_of(out));
  if (algorithm->data[mark_field] != mark || !spec || !supported(*spec)) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->algo = *algorithm;
  result->workspaceSize = algorithm->data[workspace_field];
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t what, void* out, size_t bytes,
                                                    size_t* written) {
  const auto value = std::uint32_t(what == CUBLASLT_ALGO_CONFIG_ID ? algorithm->data[id_field] : 0);
  std::memcpy(out, &value, std::min(bytes, sizeof value));
  if (written) *written = sizeof value;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const char* call = "cublasLtMatmul";
  check_enqueue(call, stream);
  const Layout of_a = layout_of(a_layout), of_b = layout_of(b_layout), of_out = layout_of(out_layout);
  const auto spec = spec_of(d, of_a, of_b, of_out);
  if (!spec) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm->data[mark_field] != mark) violation(call, stream, "the algorithm is not one of the heuristics");
  if (*static_cast<const float*>(alpha) != 1 || c != out) violation(call, stream, "alpha or C are not simulated");
  const std::uint64_t needed = algorithm->data[workspace_field];
  if (workspace_bytes < needed)
    violation(call, stream, fmt::format("a workspace of {} bytes, the algorithm needs {}", workspace_bytes, needed));
  if (needed > 0) check_pointer(stream, "the workspace", workspace, needed);
  cuda::MatmulArgs args{.a = a, .b = b, .d = out};
  args.beta = *static_cast<const float*>(beta);
  check_pointer(stream, "A", a, of_a.bytes());
  check_pointer(stream, "B", b, of_b.bytes());
  check_pointer(stream, "D", out, of_out.bytes());
  check_epilogue(stream, d, *spec, args);
  if (double(spec->m) * double(spec->n) * double(spec->k) > 1e9) {  // benchmarks of a GPU's rate
    leave_out(call, stream, "a product of more than 1e9 multiplications");
    return CUBLAS_STATUS_SUCCESS;
  }
  enqueue(stream, "matrix multiplication " + cuda::str(*spec),
          [spec = *spec, args, workspace, needed] {
            if (needed > 0) std::memset(workspace, 0xee, needed);
            test::HostProduct(spec, args).run();
          },
          {Activity::Kind::kernel, "sm90_xmma_gemm", 0});
  return CUBLAS_STATUS_SUCCESS;
}
}
