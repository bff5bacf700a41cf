#include "cuda/dnn/cublas.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cuda/dnn/cublas_library.hpp"
#include "cuda/runtime/check.hpp"
#include "millrace/base/log.hpp"

namespace millrace::cuda {

inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(Exit::comm, error_context::describe_failure(
                                call, cat(cublasLtGetStatusName(status), " (", cublasLtGetStatusString(status), ")")));
}
#define MR_CUBLAS(call) ::millrace::cuda::check(call, #call)

namespace {

constexpr std::uint32_t alignment = 16;  // what every pointer of ours keeps
constexpr int most_candidates = 16;

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      fail(Exit::config, "CUDA does not compute in ", name_of(t), ". choose fp32, bf16 or fp16");
  }
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

// Destroys a handle of cuBLASLt's.
template <const auto& destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using Handle = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy<cublasLtDestroy>>;
using Descriptor = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy<cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroy<cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, Destroy<cublasLtMatmulPreferenceDestroy>>;

Layout column_major(DType t, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  MR_CUBLAS(cublasLtMatrixLayoutCreate(&layout, type_of(t), std::uint64_t(rows), std::uint64_t(columns), rows));
  return Layout(layout);
}

struct Choice {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;
  double seconds = 0;  // 0: not timed; of the chosen one rank 0's
};

// cuBLAS's algorithm is plain data, good for the version that made it.
std::string text_of(const Choice& c) {
  return nlohmann::json{{"algorithm", c.algorithm.data}, {"workspace", c.workspace}}.dump();
}

std::optional<Choice> from_text(const std::string& text) {
  try {
    const auto j = nlohmann::json::parse(text);
    Choice c;
    j.at("algorithm").get_to(c.algorithm.data);
    j.at("workspace").get_to(c.workspace);
    return c;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

class LtMatmul : public Matmul {
 public:
  LtMatmul(cublasLtHandle_t handle, const MatmulSpec& s, bool tf32) : handle_(handle), spec_(s) {
    const bool rounds = tf32 && s.input == DType::f32;
    cublasLtMatmulDesc_t product = nullptr;
    MR_CUBLAS(
        cublasLtMatmulDescCreate(&product, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    product_.reset(product);
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s.epilogue));
    if (has_bias(s.epilogue)) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t(type_of(s.output)));
    if (aux_of(s.epilogue) != Aux::none)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t(aux_stride(s.epilogue, s.m)));
    a_ = s.transpose_a ? column_major(s.input, s.k, s.m) : column_major(s.input, s.m, s.k);
    b_ = s.transpose_b ? column_major(s.input, s.n, s.k) : column_major(s.input, s.k, s.n);
    d_ = column_major(s.output, s.m, s.n);
  }

  std::size_t workspace_bytes() const override { return choice_.workspace; }

  std::string name() const override {
    int id = 0, tile = 0;
    std::size_t written = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&choice_.algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
    cublasLtMatmulAlgoConfigGetAttribute(&choice_.algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile,
                                         &written);
    return cat("cublasLt ", id, ":", tile);
  }

  double seconds() const override { return choice_.seconds; }
  void run(StreamHandle stream, const MatmulArgs& args) override { MR_CUBLAS(enqueue(stream, choice_, args)); }

  cublasStatus_t enqueue(StreamHandle stream, const Choice& choice, const MatmulArgs& x) {
    const float one = 1;
    point_at(x.bias, x.aux);
    return cublasLtMatmul(handle_, product_.get(), &one, x.a, a_.get(), x.b, b_.get(), &x.beta, x.d, d_.get(), x.d,
                          d_.get(), &choice.algorithm, x.workspace, choice.workspace, stream);
  }

  // Best first by cuBLAS's own guess; empty: it has none.
  std::vector<Choice> candidates(std::size_t workspace_limit) {
    point_somewhere();
    cublasLtMatmulPreference_t made = nullptr;
    MR_CUBLAS(cublasLtMatmulPreferenceCreate(&made));
    const Preference preference(made);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      MR_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, what, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(workspace_limit));
    // Parts of a split sum meet in float32 and in one order: neither in the result's 16 bits nor as they come.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto matrix : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(matrix, alignment);
    cublasLtMatmulHeuristicResult_t results[most_candidates];
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, product_.get(), a_.get(), b_.get(), d_.get(),
                                                                 d_.get(), made, most_candidates, results, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
    MR_CUBLAS(status);
    std::vector<Choice> out;
    for (int i = 0; i < count; ++i)
      if (results[i].state == CUBLAS_STATUS_SUCCESS) out.push_back({results[i].algo, results[i].workspaceSize, 0});
    return out;
  }

  // The choice that `text` tells of, as cuBLAS confirms it here: nullopt where it would not run, or wants more scratch
  // than was said.
  std::optional<Choice> confirmed(const std::string& text) {
    point_somewhere();
    auto choice = from_text(text);
    cublasLtMatmulHeuristicResult_t result{};
    if (!choice ||
        cublasLtMatmulAlgoCheck(handle_, product_.get(), a_.get(), b_.get(), d_.get(), d_.get(), &choice->algorithm,
                                &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > choice->workspace)
      return std::nullopt;
    return choice;
  }

  void choose(const Choice& choice) { choice_ = choice; }
  const MatmulSpec& spec() const { return spec_; }

 private:
  void point_at(void* bias, void* aux) {
    if (has_bias(spec_.epilogue)) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (aux_of(spec_.epilogue) != Aux::none) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  }
  void point_somewhere() {  // the choice of a kernel asks for the alignment
    void* const aligned = reinterpret_cast<void*>(std::uintptr_t(alignment));
    point_at(aligned, aligned);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, T value) {
    MR_CUBLAS(cublasLtMatmulDescSetAttribute(product_.get(), what, &value, sizeof value));
  }
  cublasLtHandle_t handle_;
  MatmulSpec spec_;
  Descriptor product_;
  Layout a_, b_, d_;
  Choice choice_;
};

// Device memory for timing, null where there is none to spare.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) {
    if (cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)) != cudaSuccess) data_ = nullptr, (void)cudaGetLastError();
  }
  ~Scratch() { cudaFree(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// The fastest of the candidates on random data: the best of three rounds each, rounds interleaved. None where all fail.
std::optional<Choice> fastest(const LaunchContext& context, LtMatmul& product, std::vector<Choice> candidates) {
  const MatmulSpec& s = product.spec();
  std::size_t most = 0;
  for (const Choice& c : candidates) most = std::max(most, c.workspace);
  const Scratch a(std::size_t(s.m * s.k) * size_of(s.input)), b(std::size_t(s.k * s.n) * size_of(s.input)),
      d(std::size_t(s.m * s.n) * size_of(s.output)), bias(std::size_t(std::max(s.m, s.n)) * size_of(s.output)),
      aux(aux_bytes(s)), workspace(most);
  for (const Scratch* scratch : {&a, &b, &d, &bias, &aux, &workspace})
    if (!scratch->data()) return candidates.front();
  fill_random(context, a.data(), s.input, s.m * s.k);
  fill_random(context, b.data(), s.input, s.k * s.n);
  fill_random(context, bias.data(), s.output, std::max(s.m, s.n));
  if (aux_of(s.epilogue) == Aux::values) fill_random(context, aux.data(), s.output, s.m * s.n);
  const MatmulArgs args{.a = a.data(),
                        .b = b.data(),
                        .d = d.data(),
                        .bias = bias.data(),
                        .aux = aux.data(),
                        .workspace = workspace.data()};
  const auto run = [&](const Choice& c) { return product.enqueue(context.stream, c, args); };
  // A candidate that does not even start is none.
  std::erase_if(candidates, [&](const Choice& c) { return run(c) != CUBLAS_STATUS_SUCCESS; });
  (void)cudaGetLastError();
  if (candidates.empty()) {
    log::local("warning: every kernel that cuBLAS names for the product " + str(s) + " failed. it goes without");
    return std::nullopt;
  }
  cudaEvent_t begin, end;
  MR_CUDA(cudaEventCreate(&begin));
  MR_CUDA(cudaEventCreate(&end));
  constexpr int repeats = 5;
  for (int round = 0; round < 3; ++round)
    for (Choice& c : candidates) {
      MR_CUDA(cudaEventRecord(begin, context.stream));
      for (int r = 0; r < repeats; ++r) MR_CUBLAS(run(c));
      MR_CUDA(cudaEventRecord(end, context.stream));
      MR_CUDA(cudaEventSynchronize(end));
      float milliseconds = 0;
      MR_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
      const double seconds = double(milliseconds) * 1e-3 / repeats;
      if (round == 0 || seconds < c.seconds) c.seconds = seconds;
    }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  // cuBLAS's order decides between those that are as good as equal: noise should not.
  double best = candidates.front().seconds;
  for (const Choice& c : candidates) best = std::min(best, c.seconds);
  return *std::find_if(candidates.begin(), candidates.end(), [&](const Choice& c) { return c.seconds <= best * 1.02; });
}

class CublasLt : public Cublas {
 public:
  CublasLt(const LaunchContext& context, PlanSelector& choices, const CublasOptions& options)
      : context_(context), choices_(choices), options_(options) {
    cublasLtHandle_t handle = nullptr;
    MR_CUBLAS(cublasLtCreate(&handle));
    handle_.reset(handle);
  }

  std::unique_ptr<Matmul> find(const MatmulSpec& spec) override {
    auto product = std::make_unique<LtMatmul>(handle_.get(), spec, options_.tf32);
    const std::string key = cat(str(spec), ", up to ", options_.workspace_bytes, options_.tf32 ? " tf32" : "");
    const PlanEntry entry = choices_.get(key, [&] { return select(*product); });
    if (entry.plan.empty()) return nullptr;
    if (auto choice = product->confirmed(entry.plan)) {
      choice->seconds = entry.seconds;
      return product->choose(*choice), std::move(product);
    }
    if (!warned_)
      log::local("warning: a remembered kernel for a product does not run here. cuBLAS's own choice is taken");
    warned_ = true;
    const auto candidates = product->candidates(options_.workspace_bytes);
    if (candidates.empty())
      fail(Exit::config, "cuBLAS has no kernel for the product ", str(spec), ", though rank 0's has. use equal GPUs");
    Choice own = candidates.front();
    own.seconds = entry.seconds;  // what the ranks decide by, and alike
    product->choose(own);
    return product;
  }

 private:
  PlanEntry select(LtMatmul& product) {
    const auto candidates = product.candidates(options_.workspace_bytes);
    if (candidates.empty()) return {};
    const std::optional<Choice> choice =
        choices_.timing_enabled() ? fastest(context_, product, candidates) : candidates.front();
    return choice ? PlanEntry{text_of(*choice), choice->seconds} : PlanEntry{};
  }
  LaunchContext context_;
  PlanSelector& choices_;
  CublasOptions options_;
  Handle handle_;
  bool warned_ = false;
};

}  // namespace

std::unique_ptr<Cublas> make_cublas(const LaunchContext& context, PlanSelector& choices, const CublasOptions& options) {
  return std::make_unique<CublasLt>(context, choices, options);
}

std::size_t cublas_version() { return cublasLtGetVersion(); }

}  // namespace millrace::cuda
