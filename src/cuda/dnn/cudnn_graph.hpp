// A thin layer over the backend API of cuDNN: graphs of operations that are fused, the engines that cuDNN proposes for
// a graph, and execution plans. conv_graph.hpp and attention_graph.hpp have the graphs. A DeviceTarget is a real device
// or the description of one. So graphs can be checked without a GPU: everything except Call::run() works with both.
#pragma once
#include <fmt/core.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/dnn/cudnn_library.hpp"
#include "cuda/errors/error_context.hpp"
#include "millrace/base/error.hpp"
#include "millrace/device/tensor.hpp"

namespace millrace::cuda::cudnn {

cudnnDataType_t type_of(DType);  // Error(config) for a type that cuDNN does not compute with
std::string last_error();        // cuDNN's message about the last failure of this thread

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
  friend class Graph;
  friend class Plan;
  DeviceTarget() = default;
  cudnnHandle_t handle_ = nullptr;
  Descriptor properties_;
};

// A tensor of a graph that lies in memory. Its role is a number that names it in the graph.
struct Argument {
  std::int64_t role = 0;
  Shape shape;
  DType dtype = DType::f32;
  std::int64_t part_of =
      0;                   // the role of an earlier argument: the tensor lies in the memory of that one. 0: it does not
  std::size_t offset = 0;  // bytes, in that memory
  std::size_t bytes() const { return std::size_t(shape.count()) * size_of(dtype); }
};
// A value that a graph reads from the memory of the host when it is enqueued.
struct Constant {
  std::int64_t role = 0;
  float value = 0;
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
  friend class Graph;
  static std::optional<Plan> finished(Descriptor plan, Descriptor config);
  Descriptor plan_, config_;  // cuDNN needs the configuration as long as the plan
  std::size_t workspace_bytes_ = 0;
  bool runtime_compiled_ = false;
};

class Graph {
 public:
  virtual ~Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
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

 protected:
  Graph(const DeviceTarget& target, DType dtype) : target_(target), dtype_(dtype) {}
  const Descriptor& keep(Descriptor);
  void operation(Descriptor);
  void finish();  // after the last operation

 private:
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

// What a graph computes, for the choice of its plan. ConvProblem and AttentionProblem convert to it.
struct Problem {
  std::string key;
  DType dtype = DType::f32;
  std::vector<Argument> arguments;  // the pointers of Call::run(), in order
  std::vector<Constant> constants;
  std::function<std::unique_ptr<Graph>(const DeviceTarget&)> make_graph;
  std::size_t candidates = 0;  // to be timed; 0: the usual number
};

// A plan with its arguments. Every run passes the pointers; pointers equal to those of the last run cost nothing.
class Call {
 public:
  Call() = default;
  Call(std::shared_ptr<const Plan>, const Problem&);
  explicit operator bool() const { return plan_ != nullptr; }
  std::size_t workspace_bytes() const { return plan_ ? plan_->workspace_bytes() : 0; }
  const Plan& plan() const { return *plan_; }
  std::shared_ptr<const Plan> shared_plan() const { return plan_; }
  void run(cudnnHandle_t, std::vector<void*> pointers, void* workspace);  // as Problem::arguments

 private:
  std::shared_ptr<const Plan> plan_;
  std::vector<std::int64_t> roles_;
  std::vector<float> constants_;  // their roles are the last ones
  std::vector<void*> pointers_;
  void* workspace_ = nullptr;
  Descriptor pack_;
};

}  // namespace millrace::cuda::cudnn

#define MR_CUDNN(call) ::millrace::cuda::cudnn::check(call, #call)
