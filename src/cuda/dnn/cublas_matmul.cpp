#include "cuda/dnn/cublas_matmul.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cuda/dnn/cublas.hpp"
#include "cuda/plans/device_timing.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/value_table.hpp"
#include "millrace/plans/time_candidates.hpp"

namespace millrace::cuda {
namespace {

constexpr std::uint32_t alignment = 16;  // bytes; every pointer of MatmulArgs has it

cudaDataType_t matrix_type_of(DType dtype) {
  constexpr TableRow<DType, cudaDataType_t> types[] = {
      {DType::f32, CUDA_R_32F}, {DType::bf16, CUDA_R_16BF}, {DType::f16, CUDA_R_16F}};
  if (const auto* type = find_value(types, dtype)) return *type;
  fail(Exit::config, "CUDA does not compute in {}. choose fp32, bf16 or fp16", name_of(dtype));
}

cublasLtEpilogue_t epilogue_of(Epilogue e) {
  static constexpr cublasLtEpilogue_t all[] = {
      // in the order of Epilogue
      CUBLASLT_EPILOGUE_DEFAULT,       CUBLASLT_EPILOGUE_BIAS,        CUBLASLT_EPILOGUE_RELU,
      CUBLASLT_EPILOGUE_RELU_BIAS,     CUBLASLT_EPILOGUE_RELU_AUX,    CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
      CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_GELU_AUX,
      CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,       CUBLASLT_EPILOGUE_DRELU_BGRAD,
      CUBLASLT_EPILOGUE_DGELU,         CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADB};
  return all[int(e)];
}

MatrixLayout column_major(DType t, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
  cublasLtMatrixLayout_t made = nullptr;
  MR_CUBLAS(cublasLtMatrixLayoutCreate(&made, matrix_type_of(t), std::uint64_t(rows), std::uint64_t(columns), rows));
  MatrixLayout layout(made);
  if (batch == 1) return layout;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t what, auto value) {
    MR_CUBLAS(cublasLtMatrixLayoutSetAttribute(made, what, &value, sizeof value));
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t(batch));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns);
  return layout;
}

// Bytes. In a batch, only the first of the matrices need have that of the pointer.
std::uint32_t alignment_of(std::int64_t elements, DType t, std::int64_t batch) {
  const std::int64_t bytes = elements * std::int64_t(size_of(t));
  return batch == 1 ? alignment : std::uint32_t(std::gcd(bytes, std::int64_t(alignment)));
}

std::optional<MatmulAlgorithm> parse_algorithm(const std::string& text) {
  try {
    const auto j = nlohmann::json::parse(text);
    MatmulAlgorithm a;
    j.at("algorithm").get_to(a.algorithm.data);
    j.at("workspace").get_to(a.workspace);
    return a;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string serialize(const MatmulAlgorithm& a) {
  return nlohmann::json{{"algorithm", a.algorithm.data}, {"workspace", a.workspace}}.dump();
}

CublasMatmul::CublasMatmul(cublasLtHandle_t handle, const MatmulSpec& s, bool tf32) : handle_(handle), spec_(s) {
  const bool rounds = tf32 && s.input == DType::f32;
  cublasLtMatmulDesc_t made = nullptr;
  MR_CUBLAS(cublasLtMatmulDescCreate(&made, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  descriptor_.reset(made);
  set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s.epilogue));
  if (has_bias(s.epilogue)) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t(matrix_type_of(s.output)));
  if (aux_of(s.epilogue) != Aux::none)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t(aux_stride(s.epilogue, s.m)));
  const auto layout = [&](DType t, std::int64_t rows, std::int64_t columns, bool transposed) {
    return transposed ? column_major(t, columns, rows, s.batch) : column_major(t, rows, columns, s.batch);
  };
  a_ = layout(s.input, s.m, s.k, s.transpose_a);
  b_ = layout(s.input, s.k, s.n, s.transpose_b);
  d_ = layout(s.output, s.m, s.n, false);
}

std::string CublasMatmul::name() const {
  int id = 0, tile = 0;
  std::size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&chosen_.algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
  cublasLtMatmulAlgoConfigGetAttribute(&chosen_.algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
  return fmt::format("cublasLt {}:{}", id, tile);
}

cublasStatus_t CublasMatmul::enqueue(StreamHandle stream, const MatmulAlgorithm& algorithm, const MatmulArgs& x) {
  set_pointers(x.bias, x.aux);
  return cublasLtMatmul(handle_, descriptor_.get(), &x.alpha, x.a, a_.get(), x.b, b_.get(), &x.beta, x.c ? x.c : x.d,
                        d_.get(), x.d, d_.get(), &algorithm.algorithm, x.workspace, algorithm.workspace, stream);
}

std::vector<MatmulAlgorithm> CublasMatmul::candidates(std::size_t workspace_limit) {
  set_aligned_pointers();
  cublasLtMatmulPreference_t made = nullptr;
  MR_CUBLAS(cublasLtMatmulPreferenceCreate(&made));
  const MatmulPreference preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
    MR_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, what, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(workspace_limit));
  // Split-k kernels must add their partial sums in float32 and in a fixed order. This excludes sums in the 16 bits of
  // the result, and atomics.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const std::uint32_t of_d = alignment_of(spec_.m * spec_.n, spec_.output, spec_.batch);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(spec_.m * spec_.k, spec_.input, spec_.batch));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(spec_.k * spec_.n, spec_.input, spec_.batch));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_d);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_d);
  cublasLtMatmulHeuristicResult_t results[cublas_candidates];
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, descriptor_.get(), a_.get(), b_.get(), d_.get(),
                                                               d_.get(), made, cublas_candidates, results, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  MR_CUBLAS(status);
  std::vector<MatmulAlgorithm> out;
  for (int i = 0; i < count; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS) out.push_back({results[i].algo, results[i].workspaceSize, 0});
  return out;
}

std::optional<MatmulAlgorithm> CublasMatmul::parse(const std::string& text) {
  set_aligned_pointers();
  auto parsed = parse_algorithm(text);
  cublasLtMatmulHeuristicResult_t result{};
  if (!parsed ||
      cublasLtMatmulAlgoCheck(handle_, descriptor_.get(), a_.get(), b_.get(), d_.get(), d_.get(), &parsed->algorithm,
                              &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > parsed->workspace)
    return std::nullopt;
  return parsed;
}

void CublasMatmul::set_pointers(void* bias, void* aux) {
  if (has_bias(spec_.epilogue)) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (aux_of(spec_.epilogue) != Aux::none) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
}

// cuBLAS looks at the alignment of the pointers when it proposes algorithms.
void CublasMatmul::set_aligned_pointers() {
  void* const aligned = reinterpret_cast<void*>(std::uintptr_t(alignment));
  set_pointers(aligned, aligned);
}

std::optional<MatmulAlgorithm> fastest(const LaunchContext& context, CublasMatmul& matmul,
                                       std::vector<MatmulAlgorithm> candidates) {
  const MatmulSpec& s = matmul.spec();
  std::size_t workspace_bytes = 0;
  for (const MatmulAlgorithm& c : candidates) workspace_bytes = std::max(workspace_bytes, c.workspace);
  const std::int64_t of_a = s.batch * s.m * s.k, of_b = s.batch * s.k * s.n, of_d = s.batch * s.m * s.n;
  const ScratchMemory a(std::size_t(of_a) * size_of(s.input)), b(std::size_t(of_b) * size_of(s.input)),
      d(std::size_t(of_d) * size_of(s.output)), bias(std::size_t(std::max(s.m, s.n)) * size_of(s.output)),
      aux(aux_bytes(s)), workspace(workspace_bytes);
  for (const ScratchMemory* scratch : {&a, &b, &d, &bias, &aux, &workspace})
    if (!scratch->data()) return candidates.front();
  fill_random(context, a.data(), s.input, of_a);
  fill_random(context, b.data(), s.input, of_b);
  fill_random(context, bias.data(), s.output, std::max(s.m, s.n));
  if (s.add) fill_random(context, d.data(), s.output, of_d);
  if (aux_of(s.epilogue) == Aux::values) fill_random(context, aux.data(), s.output, s.m * s.n);
  const MatmulArgs args{.a = a.data(),
                        .b = b.data(),
                        .d = d.data(),
                        .bias = bias.data(),
                        .aux = aux.data(),
                        .workspace = workspace.data(),
                        .beta = s.add ? 1.0f : 0.0f};
  const auto run = [&](const MatmulAlgorithm& c) { return matmul.enqueue(context.stream, c, args); };
  const auto seconds = time_on_device(context.stream, candidates.size(),
                                      [&](std::size_t c) { return run(candidates[c]) == CUBLAS_STATUS_SUCCESS; });
  const std::size_t best = choose_candidate(seconds);
  if (best == candidates.size()) {
    log::local("warning: every kernel that cuBLAS proposes for the matrix multiplication " + str(s) +
               " failed. millrace does without it");
    return std::nullopt;
  }
  candidates[best].seconds = seconds[best];
  return candidates[best];
}

}  // namespace millrace::cuda
