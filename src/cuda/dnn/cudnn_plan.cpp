// The parts of cudnn_graph.hpp that do not depend on the kind of graph: descriptors, targets and plans.
#include <fmt/core.h>

#include "cuda/dnn/cudnn_graph.hpp"
#include "millrace/base/value_table.hpp"

namespace millrace::cuda::cudnn {
namespace {

using Numbers = std::vector<std::int64_t>;

}  // namespace

std::string last_error() {
  char text[1024] = "";
  cudnnGetLastErrorString(text, sizeof text);
  return text;
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_prepared(cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                     const void* values) {
  check_prepared(cudnnBackendSetAttribute(raw_, name, type, count, values), "cudnnBackendSetAttribute");
}
void Descriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
void Descriptor::set(cudnnBackendAttributeName_t name, const Numbers& values) {
  set(name, CUDNN_TYPE_INT64, std::int64_t(values.size()), values.data());
}
void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& other) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.raw_);
}
void Descriptor::set(cudnnBackendAttributeName_t name, float value) { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
void Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
void Descriptor::set(cudnnBackendAttributeName_t name, const std::string& text) {
  set(name, CUDNN_TYPE_CHAR, std::int64_t(text.size()), text.data());
}
void Descriptor::finalize() { check_prepared(cudnnBackendFinalize(raw_), "cudnnBackendFinalize"); }
bool Descriptor::try_finalize() { return cudnnBackendFinalize(raw_) == CUDNN_STATUS_SUCCESS; }

DeviceTarget DeviceTarget::described_by(const std::string& json) {
  DeviceTarget target;
  target.properties_ = Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  target.properties_.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json);
  target.properties_.finalize();
  return target;
}

cudnnDataType_t type_of(DType dtype) {
  constexpr TableRow<DType, cudnnDataType_t> types[] = {
      {DType::f32, CUDNN_DATA_FLOAT}, {DType::f16, CUDNN_DATA_HALF}, {DType::bf16, CUDNN_DATA_BFLOAT16}};
  if (const auto* type = find_value(types, dtype)) return *type;
  fail(Exit::config, "cuDNN does not compute in {}. choose fp32, bf16 or fp16", name_of(dtype));
}

std::string PlanRules::key() const {
  return fmt::format("workspace {}{}{}", workspace_limit, deterministic ? " deterministic" : "", tf32 ? " tf32" : "");
}

std::optional<Plan> Plan::finished(Descriptor d, Descriptor config) {
  if (!d.try_finalize()) return std::nullopt;
  std::int64_t bytes = 0, count = 0;
  check_prepared(
      cudnnBackendGetAttribute(d.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes),
      "workspace of an execution plan");
  Plan plan;
  plan.plan_ = std::move(d);
  plan.config_ = std::move(config);
  plan.workspace_bytes_ = std::size_t(bytes);
  return plan;
}

std::optional<Plan> Plan::from_json(const DeviceTarget& target, const std::string& json) {
  Descriptor d(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target.handle_)
    d.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle_);
  else
    d.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties_);
  if (cudnnBackendSetAttribute(d.raw(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               std::int64_t(json.size()), json.data()) != CUDNN_STATUS_SUCCESS)
    return std::nullopt;
  return finished(std::move(d), {});
}

std::string Plan::json() const {
  std::int64_t size = 0;
  check_prepared(cudnnBackendGetAttribute(plan_.raw(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                          0, &size, nullptr),
                 "size of a plan's text");
  std::string text(std::size_t(size), '\0');
  check_prepared(cudnnBackendGetAttribute(plan_.raw(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                          size, &size, text.data()),
                 "text of a plan");
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

std::string Plan::engine() const {
  static const std::string key = "\"engineId\":";
  const std::string text = json();
  const auto at = text.find(key), from = at + key.size();
  return "eng" + (at == text.npos ? "?" : text.substr(from, text.find_first_not_of("0123456789", from) - from));
}

Call::Call(std::shared_ptr<const Plan> plan, const Problem& problem) : plan_(std::move(plan)) {
  for (const Argument& argument : problem.arguments) roles_.push_back(argument.role);
  for (const Constant& constant : problem.constants) {
    roles_.push_back(constant.role);
    constants_.push_back(constant.value);
  }
}

void Call::run(cudnnHandle_t handle, std::vector<void*> pointers, void* workspace) {
  if (!pack_ || pointers != pointers_ || workspace != workspace_) {
    MR_CHECK(pointers.size() + constants_.size() == roles_.size());
    std::vector<void*> all = pointers;
    for (float& constant : constants_) all.push_back(&constant);
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);  // a finalized pack cannot take other pointers
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, roles_);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::int64_t(all.size()), all.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finalize();
    pack_ = std::move(pack);
    pointers_ = std::move(pointers);
    workspace_ = workspace;
  }
  MR_CUDNN(cudnnBackendExecute(handle, plan_->raw(), pack_.raw()));
}

}  // namespace millrace::cuda::cudnn
