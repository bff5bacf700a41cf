// A simulated cuBLASLt. Descriptors, layouts and preferences are those of the real library, which makes them without a
// GPU. The heuristics propose pretended algorithms, and a multiplication is computed by loops on the host.
#include "simulated_cuda/cublas.hpp"

#include <cublasLt.h>
#include <fmt/core.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

#include "cuda/dnn/matmul.hpp"
#include "simulated_cuda/runtime.hpp"
#include "support/host/epilogue.hpp"
#include "support/host/product.hpp"

namespace millrace::simulated {
namespace {

using cuda::Epilogue;
using cuda::MatmulSpec;

// What the fields of cublasLtMatmulAlgo_t mean here.
enum Field { mark_field, id_field, workspace_field, problem_field, alignment_field };
constexpr std::uint64_t mark = 0xf3696d756c617465;  // all 64 bits must survive in a cache
constexpr std::uint64_t default_alignment = 256;    // of the preferences

std::mutex handles_mutex;
std::map<cublasLtHandle_t, int>& handles() {  // their GPUs
  static auto* const all = new std::map<cublasLtHandle_t, int>;
  return *all;
}

// A handle belongs to the GPU for which it was made. It must not be used after cublasLtDestroy().
void check_handle(const char* call, cudaStream_t stream, cublasLtHandle_t handle) {
  const std::lock_guard hold(handles_mutex);
  const auto found = handles().find(handle);
  if (found == handles().end()) violation(call, stream, "the handle does not exist (any more)");
  if (const int device = this_thread().device; found->second != device)
    violation(call, stream, fmt::format("the handle belongs to GPU {}, the thread uses GPU {}", found->second, device));
}

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
  std::int64_t rows = 0, columns = 0, stride = 0, batch = 1, batch_stride = 0;
  std::size_t bytes() const { return std::size_t((batch - 1) * batch_stride + stride * columns) * size_of(type); }
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
          get(CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{}),
          get(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{}),
          get(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t{})};
}

Epilogue epilogue_of(cublasLtMatmulDesc_t d) {
  const auto found = test::epilogue_from(of_description<cublasLtEpilogue_t>(d, CUBLASLT_MATMUL_DESC_EPILOGUE));
  if (!found) violation("cublasLtMatmul", "the epilogue is not simulated");
  return *found;
}

// nullopt: the sizes of the matrices contradict each other.
std::optional<MatmulSpec> spec_of(cublasLtMatmulDesc_t d, const Layout& a, const Layout& b, const Layout& out) {
  // CUBLASLT_MATRIX_LAYOUT_LD: "must be large enough so that matrix memory locations are not overlapping (e.g. greater
  // or equal to CUBLASLT_MATRIX_LAYOUT_ROWS in case of CUBLASLT_ORDER_COL)".
  for (const Layout* l : {&a, &b, &out}) {
    if (l->stride < l->rows)
      violation("cublasLtMatmul", fmt::format("a leading dimension of {} for {} rows", l->stride, l->rows));
    if (l->stride != l->rows || (l->batch > 1 && l->batch_stride != l->rows * l->columns))
      violation("cublasLtMatmul", "columns or matrices that are not adjacent are not simulated");
  }
  MatmulSpec s;
  s.transpose_a = of_description<std::int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  s.transpose_b = of_description<std::int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  s.m = s.transpose_a ? a.columns : a.rows;
  s.k = s.transpose_a ? a.rows : a.columns;
  s.n = s.transpose_b ? b.rows : b.columns;
  s.input = a.type;
  s.output = out.type;
  s.epilogue = epilogue_of(d);
  s.batch = out.batch;
  if (s.batch > 1 && s.epilogue != Epilogue::none) violation("cublasLtMatmul", "a batch has an epilogue");
  const bool fits = a.batch == b.batch && a.batch == out.batch && (s.transpose_b ? b.columns : b.rows) == s.k &&
                    out.rows == s.m && out.columns == s.n && b.type == a.type;
  return fits ? std::optional(s) : std::nullopt;
}

// The library reads bias and aux in vectors, and the workspace must be aligned to 16 bytes.
void check_pointer(cudaStream_t stream, const char* what, const void* p, std::size_t bytes,
                   std::uint64_t alignment = 16) {
  const char* call = "cublasLtMatmul";
  if (reinterpret_cast<std::uintptr_t>(p) % alignment != 0)
    violation(call, stream, fmt::format("{} at {} is not aligned to {} bytes", what, p, alignment));
  check_accessible_range(call, stream, p, bytes);
}

void check_matrix(cudaStream_t stream, const char* what, const void* p, const Layout& of, std::uint64_t alignment) {
  check_pointer(stream, what, p, of.bytes(), alignment);
  if (of.batch > 1 && std::size_t(of.batch_stride) * size_of(of.type) % alignment != 0)
    violation("cublasLtMatmul", stream, fmt::format("a batch of {} is not aligned to {} bytes", what, alignment));
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

std::uint64_t hash_of(const MatmulSpec& s) { return std::hash<std::string>()(cuda::str(s)); }

// CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*: the algorithms may need such pointers. In 16 bits each.
std::uint64_t alignments_of(cublasLtMatmulPreference_t preference) {
  std::uint64_t all = 0;
  int shift = 0;
  for (const auto what : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    std::uint32_t bytes = default_alignment;
    std::size_t written = 0;
    cublasLtMatmulPreferenceGetAttribute(preference, what, &bytes, sizeof bytes, &written);
    all |= std::uint64_t(bytes) << shift;
    shift += 16;
  }
  return all;
}

// The rules about an algorithm and its workspace.
void check_algorithm(cudaStream_t stream, const cublasLtMatmulAlgo_t& algorithm, const MatmulSpec& spec,
                     const void* workspace, std::size_t workspace_bytes) {
  const char* call = "cublasLtMatmul";
  if (algorithm.data[mark_field] != mark) violation(call, stream, "the algorithm is not one of the heuristics");
  // cublasLtMatmulAlgoGetHeuristic finds algorithms for this description and these layouts. cublasLtMatmul may refuse
  // them for others (CUBLAS_STATUS_NOT_SUPPORTED).
  if (algorithm.data[problem_field] != hash_of(spec))
    violation(call, stream, "the algorithm was found for another problem than " + cuda::str(spec));
  const std::uint64_t needed = algorithm.data[workspace_field];
  if (workspace_bytes < needed)
    violation(call, stream, fmt::format("a workspace of {} bytes, the algorithm needs {}", workspace_bytes, needed));
  if (needed > 0) check_pointer(stream, "the workspace", workspace, needed);
}

// Like the real library, it has no epilogues for some shapes.
bool supported(const MatmulSpec& s) { return s.epilogue == Epilogue::none || s.m % 8 == 0; }

}  // namespace

CublasOffers& cublas_offers() {
  thread_local CublasOffers all;
  return all;
}

}  // namespace millrace::simulated

using namespace millrace;
using namespace millrace::simulated;

extern "C" {

// cuBLAS documentation, cublasLtCreate: it allocates resources on the device and belongs to the current one.
cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) {
  check_call("cublasLtCreate", Safety::unsafe_in_capture);
  const std::lock_guard hold(handles_mutex);
  *out = reinterpret_cast<cublasLtHandle_t>(new int(0));
  handles()[*out] = this_thread().device;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const std::lock_guard hold(handles_mutex);
  if (handles().erase(handle) == 0) violation("cublasLtDestroy", "the handle does not exist (any more)");
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
  const auto& workspaces = cublas_offers().workspaces;
  for (std::uint64_t id = 0; id < workspaces.size() && *count < wanted; ++id) {
    if (workspaces[id] > limit) continue;
    cublasLtMatmulHeuristicResult_t& r = results[(*count)++];
    r = {};
    r.state = CUBLAS_STATUS_SUCCESS;
    r.workspaceSize = workspaces[id];
    r.algo.data[mark_field] = mark;
    r.algo.data[id_field] = id;
    r.algo.data[workspace_field] = workspaces[id];
    r.algo.data[problem_field] = hash_of(*spec);
    r.algo.data[alignment_field] = alignments_of(preference);
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t out,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  const auto spec = spec_of(d, layout_of(a), layout_of(b), layout_of(out));
  const CublasOffers& offers = cublas_offers();
  if (!offers.confirms || algorithm->data[mark_field] != mark || !spec || !supported(*spec) ||
      algorithm->data[problem_field] != hash_of(*spec))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  result->algo = *algorithm;
  result->workspaceSize = algorithm->data[workspace_field] + offers.more_workspace;
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

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t d, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const char* call = "cublasLtMatmul";
  check_enqueue(call, stream);
  check_handle(call, stream, handle);
  const Layout of_a = layout_of(a_layout), of_b = layout_of(b_layout), of_out = layout_of(out_layout);
  const auto spec = spec_of(d, of_a, of_b, of_out);
  if (!spec) return CUBLAS_STATUS_INVALID_VALUE;
  check_algorithm(stream, *algorithm, *spec, workspace, workspace_bytes);
  const std::uint64_t needed = algorithm->data[workspace_field], alignments = algorithm->data[alignment_field];
  cuda::MatmulArgs args{.a = a, .b = b, .d = out};
  args.alpha = *static_cast<const float*>(alpha);
  args.beta = *static_cast<const float*>(beta);
  args.c = c;
  if (args.alpha != 1 && spec->epilogue != Epilogue::none)
    violation(call, stream, "alpha with an epilogue is not simulated");
  if (args.beta != 0) check_matrix(stream, "C", c, of_out, alignments >> 32 & 0xffff);
  check_matrix(stream, "A", a, of_a, alignments & 0xffff);
  check_matrix(stream, "B", b, of_b, alignments >> 16 & 0xffff);
  check_matrix(stream, "D", out, of_out, alignments >> 32 & 0xffff);
  check_epilogue(stream, d, *spec, args);
  if (double(spec->batch) * double(spec->m) * double(spec->n) * double(spec->k) > 1e9) {  // benchmarks of a GPU's rate
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
