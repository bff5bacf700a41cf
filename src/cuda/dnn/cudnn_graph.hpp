// A thin layer over the backend API of cuDNN: graphs of one convolution and the operations fused with it, the engines
// that cuDNN proposes for a graph, and execution plans. A DeviceTarget is a real device or the description of one. So
// graphs can be checked without a GPU: everything except Call::run() works with both.
#pragma once
#include <fmt/core.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/dnn/cudnn_library.hpp"
#include "cuda/errors/error_context.hpp"
#include "millrace/base/error.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/ops/spatial.hpp"

namespace millrace::cuda::cudnn {

std::string last_error();  // cuDNN's message about the last failure of this thread

inline void check(cudnnStatus_t status, const char* call, Exit exit = Exit::comm) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error(
        exit, error_context::describe_failure(call, fmt::format("{} ({})", cudnnGetErrorString(status), last_error())));
}

// The check of calls that prepare something, outside of the step.
inline void check_prepared(cudnnStatus_t status, const char* call) { check(status, call, Exit::config); }

// Owns one backend descriptor. Its functions throw Error(config), since descriptors are created before training starts.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor() {
    if (raw_) cudnnBackendDestroyDescriptor(raw_);
  }
  explicit operator bool() const { return raw_ != nullptr; }
  cudnnBackendDescriptor_t raw() const { return raw_; }

  void set(cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, std::int64_t count, const void* values);
  void set(cudnnBackendAttributeName_t, std::int64_t);
  void set(cudnnBackendAttributeName_t, const std::vector<std::int64_t>&);
  void set(cudnnBackendAttributeName_t, const Descriptor&);
  void set(cudnnBackendAttributeName_t, float);
  void set(cudnnBackendAttributeName_t, cudnnDataType_t);
  void set(cudnnBackendAttributeName_t, const std::string&);
  void finalize();
  bool try_finalize();  // false: cuDNN does not support what the descriptor describes

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// Movable. It must outlive the plans and graphs that are made for it.
class DeviceTarget {
 public:
  explicit DeviceTarget(cudnnHandle_t handle) : handle_(handle) {}  // borrowed
  // json: the properties of a device, in cuDNN's JSON format.
  static DeviceTarget described_by(const std::string& json);
  cudnnHandle_t handle() const { return handle_; }  // null: the target is a description

 private:
  friend class ConvGraph;
  friend class Plan;
  DeviceTarget() = default;
  cudnnHandle_t handle_ = nullptr;
  Descriptor properties_;
};

enum class Direction { forward, backward_data, backward_weights };

// The tensors of a graph. A gradient has the role of the tensor that it is the gradient of. The roles from
// virtual_roles on exist only between the operations of a graph and have no memory.
enum Role : std::int64_t {
  src_role = 1,
  weight_role,
  dst_role,
  bias_role,
  sum_role,
  square_role,
  norm_src_role,
  mean_role,
  inverse_role,
  gamma_role,
  beta_role,
  diff_gamma_role,
  diff_beta_role,
  factor_role,  // this and the next two: outputs of cuDNN's pattern that millrace does not use
  slope_role,
  offset_role,
  src_scale_role,
  src_bias_role,
  virtual_roles,
  conv_role = virtual_roles,
  centered_role,
  scaled_role,
  weighted_role,
  normed_role,
  src_scaled_role,
  src_shifted_role,
  src_normalised_role
};

struct Argument {
  Role role;
  Shape shape;
  DType dtype;
  std::size_t bytes() const { return std::size_t(shape.count()) * size_of(dtype); }
};

// One convolution in one direction. Shapes are (N, spatial..., C) and (K, kernel..., C / groups), as everywhere in
// millrace.
struct ConvProblem {
  Direction direction = Direction::forward;
  DType dtype = DType::f32;  // of all tensors except the sums, statistics and parameters of a norm, which are float32
  Shape src, weight, dst;
  Window window;
  bool bias = false;  // forward: dst = conv + bias
  bool add = false;   // the result is added to the previous contents
  bool sums = false;  // forward: also sums dst and its square over each channel
  // backward_data: the result is multiplied by the derivative of the ReLU behind a batch norm. Then the gradients of
  // the norm's gamma and beta are summed for each channel.
  bool norm = false;
  // forward and backward_weights: relu(scale * src + bias) takes the place of src, with a scale and a bias of each
  // channel in dtype.
  bool normalise = false;
  std::string key() const;
  std::vector<Argument> arguments() const;  // the pointers of Call::run(), in order
};

// How much memory a plan may use, and how exact it must be.
struct PlanRules {
  std::size_t workspace_limit = std::size_t(512) << 20;
  bool deterministic = false;
  bool tf32 = false;  // float32 factors may be rounded to 10 bits of mantissa
  std::string key() const;
};

// An engine with a complete configuration, ready to run.
class Plan {
 public:
  // nullopt: the text is not a plan, or the target does not support it.
  static std::optional<Plan> from_json(const DeviceTarget&, const std::string&);
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::string json() const;
  std::string engine() const;                                  // "eng62"
  bool runtime_compiled() const { return runtime_compiled_; }  // false for a plan of from_json(): not known
  cudnnBackendDescriptor_t raw() const { return plan_.raw(); }

 private:
  friend class ConvGraph;
  static std::optional<Plan> finished(Descriptor plan, Descriptor config);
  Descriptor plan_, config_;  // cuDNN needs the configuration as long as the plan
  std::size_t workspace_bytes_ = 0;
  bool runtime_compiled_ = false;
};

class ConvGraph {
 public:
  ConvGraph(const DeviceTarget&, const ConvProblem&);
  // At most max_plans plans that obey the rules, in cuDNN's order of preference. They come from the first of these
  // groups that has any: engines that the heuristics propose, fallback engines, engines that cuDNN compiles at run
  // time. The last group would add about a second for each graph to every start of the program.
  std::vector<Plan> plans(const PlanRules&, std::size_t max_plans) const;
  // Statistics of the runtime-compiled engines that obey the rules: how many cuDNN proposes, how many of them become
  // plans, and cuDNN's message for the last one that does not. Without a GPU, plans fail when the module is loaded.
  struct RuntimeCompiledEngines {
    int proposed = 0, finished = 0;
    std::string why_not;
  };
  RuntimeCompiledEngines runtime_compiled(const PlanRules&) const;

 private:
  const Descriptor& keep(Descriptor);
  const Descriptor& intermediate(const Shape&, Role);  // a virtual tensor in float32
  const Descriptor& normalised(const ConvProblem&, const Descriptor& src);
  void operation(Descriptor);
  void pointwise(cudnnPointwiseMode_t, const Descriptor& x, const Descriptor* b, const Descriptor& result);
  void sums(const ConvProblem&, const Descriptor& dst);
  void norm(const ConvProblem&, const Descriptor& diff, const Descriptor& passed);
  enum class Compiled { ahead, runtime_compiled };
  struct Proposals {
    Descriptor heuristics;  // cuDNN needs it as long as the configurations
    std::vector<Descriptor> configs;
  };
  Proposals proposals(cudnnBackendHeurMode_t) const;
  std::optional<Plan> plan_of(Descriptor config) const;
  std::vector<Plan> collect(cudnnBackendHeurMode_t, Compiled, const PlanRules&, std::size_t max_plans) const;
  bool allowed(const Descriptor& config, Compiled, const PlanRules&) const;
  const DeviceTarget& target_;
  DType dtype_;
  std::deque<Descriptor> parts_;  // tensors and operations, which cuDNN needs as long as the graph
  std::vector<cudnnBackendDescriptor_t> operations_;
  Descriptor graph_;
};

// A plan with its arguments. Every run passes the pointers; pointers equal to those of the last run cost nothing.
class Call {
 public:
  Call() = default;
  Call(Plan plan, const ConvProblem&);
  explicit operator bool() const { return bool(roles_.size()); }
  std::size_t workspace_bytes() const { return plan_ ? plan_->workspace_bytes() : 0; }
  const Plan& plan() const { return *plan_; }
  void run(cudnnHandle_t, std::vector<void*> pointers, void* workspace);  // as ConvProblem::arguments()

 private:
  std::optional<Plan> plan_;
  std::vector<std::int64_t> roles_;
  std::vector<void*> pointers_;
  void* workspace_ = nullptr;
  Descriptor pack_;
};

}  // namespace millrace::cuda::cudnn

#define MR_CUDNN(call) ::millrace::cuda::cudnn::check(call, #call)
