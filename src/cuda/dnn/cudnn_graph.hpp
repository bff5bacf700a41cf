// A thin owner around cuDNN's backend API: graphs of one convolution and what is fused with it, the engines that cuDNN
// proposes for them, and execution plans. A Target is a real device or a description of one, so that graphs can be
// checked where there is no GPU: everything but Call::run() works on both.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/dnn/cudnn_library.hpp"
#include "cuda/runtime/error_context.hpp"
#include "millrace/base/error.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/ops/spatial.hpp"

namespace millrace::cuda::cudnn {

std::string last_error();  // cuDNN's own words about this thread's last failure

inline void check(cudnnStatus_t status, const char* call, Exit exit = Exit::comm) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error(exit, error_context::describe_failure(call, cat(cudnnGetErrorString(status), " (", last_error(), ")")));
}

inline void prepared(cudnnStatus_t status, const char* call) { check(status, call, Exit::config); }

// Owns one backend descriptor. Setters fail with Exit::config: descriptors are made while preparing.
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
  bool try_finalize();  // false: cuDNN does not support it

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// Movable; plans and graphs made for a Target do not outlive it.
class DeviceTarget {
 public:
  explicit DeviceTarget(cudnnHandle_t handle) : handle_(handle) {}  // borrowed
  // The JSON text that cuDNN makes of a device's properties.
  static DeviceTarget described_by(const std::string& json);
  cudnnHandle_t handle() const { return handle_; }  // null: a description

 private:
  friend class ConvGraph;
  friend class Plan;
  DeviceTarget() = default;
  cudnnHandle_t handle_ = nullptr;
  Descriptor properties_;
};

enum class Direction { forward, backward_data, backward_weights };

// Data pointers of a Call, by role; gradients take the role of what they are gradients of. The first of `virtual_roles`
// and what follows exist between a graph's operations only.
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
  factor_role,  // the last three: what cuDNN offers to compute the norm's gradient by, and we do not use
  slope_role,
  offset_role,
  virtual_roles,
  conv_role = virtual_roles,
  centered_role,
  scaled_role,
  weighted_role,
  normed_role
};

struct Argument {
  Role role;
  Shape shape;
  DType dtype;
  std::size_t bytes() const { return std::size_t(shape.count()) * size_of(dtype); }
};

// One convolution in one direction. Shapes are the program's: (N, spatial..., C) and (K, kernel..., C/groups).
struct ConvProblem {
  Direction direction = Direction::forward;
  DType dtype = DType::f32;  // of all tensors but one a channel; sums are float32
  Shape src, weight, dst;
  Window window;
  bool bias = false;  // forward: dst = conv + bias
  bool add = false;   // the result is added to what is there
  bool sums = false;  // forward: a channel's sums of dst and of its squares too
  // backward_data: the result is multiplied by the derivative of relu(norm), and a channel's gradients of the norm's
  // gamma and beta are summed from that.
  bool norm = false;
  std::string key() const;
  std::vector<Argument> arguments() const;  // of a Call, in order
};

// What a plan may cost and how exact it must be.
struct PlanRules {
  std::size_t workspace_limit = std::size_t(512) << 20;
  bool deterministic = false;
  bool tf32 = false;  // float32 may be multiplied with 10 bits of mantissa
  std::string key() const;
};

// An engine with all its choices made, ready to run.
class Plan {
 public:
  // nullopt: not supported on this target, or text of something else.
  static std::optional<Plan> from_json(const DeviceTarget&, const std::string&);
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::string json() const;
  std::string engine() const;                                  // "eng62"
  bool runtime_compiled() const { return runtime_compiled_; }  // compiled then; not known of one from_json()
  cudnnBackendDescriptor_t raw() const { return plan_.raw(); }

 private:
  friend class ConvGraph;
  static std::optional<Plan> finished(Descriptor plan, Descriptor config);
  Descriptor plan_, config_;  // the plan refers to its configuration
  std::size_t workspace_bytes_ = 0;
  bool runtime_compiled_ = false;
};

class ConvGraph {
 public:
  ConvGraph(const DeviceTarget&, const ConvProblem&);
  // In cuDNN's order of preference, at most `most`, all within the rules: what the heuristics propose, else fallback
  // engines, else engines compiled at run time, which would cost each start a second a graph.
  std::vector<Plan> plans(const PlanRules&, std::size_t most) const;
  // Engines within the rules that are compiled at run time: how many cuDNN proposes, how many of these become plans
  // here, and cuDNN's words on the last that does not. Where there is no GPU the last step fails, the module's load.
  struct RuntimeCompiledEngines {
    int proposed = 0, finished = 0;
    std::string why_not;
  };
  RuntimeCompiledEngines runtime_compiled(const PlanRules&) const;

 private:
  const Descriptor& keep(Descriptor);
  const Descriptor& intermediate(const Shape&, Role);  // float32
  void operation(Descriptor);
  void pointwise(cudnnPointwiseMode_t, const Descriptor& x, const Descriptor& b, const Descriptor& result);
  void sums(const ConvProblem&, const Descriptor& dst);
  void norm(const ConvProblem&, const Descriptor& diff, const Descriptor& passed);
  enum class Compiled { ahead, runtime_compiled };
  struct Proposals {
    Descriptor heuristics;  // which the configurations refer to
    std::vector<Descriptor> configs;
  };
  Proposals proposals(cudnnBackendHeurMode_t) const;
  std::optional<Plan> plan_of(Descriptor config) const;
  std::vector<Plan> collect(cudnnBackendHeurMode_t, Compiled, const PlanRules&, std::size_t most) const;
  bool allowed(const Descriptor& config, Compiled, const PlanRules&) const;
  const DeviceTarget& target_;
  DType dtype_;
  std::deque<Descriptor> parts_;  // tensors and operations: the graph refers to them
  std::vector<cudnnBackendDescriptor_t> operations_;
  Descriptor graph_;
};

// A plan with its arguments. Pointers are told again at every run, and cost nothing where they are the same.
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
