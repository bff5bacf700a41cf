#include "support/host/composite.hpp"

#include <cstring>
#include <mutex>
#include <vector>

#include "millrace/base/error.hpp"

namespace millrace::test::composite {
namespace {

using nlohmann::json;

constexpr int engines = 2;                     // for each graph
constexpr std::int64_t workspace_bytes = 512;  // of each plan

struct Record {
  cudnnBackendDescriptorType_t type{};
  std::map<cudnnBackendAttributeName_t, std::vector<char>> attributes;
  json plan;  // of a graph with matrix products, and of what is made from it
};

std::mutex mutex;  // guards the records
std::map<cudnnBackendDescriptor_t, Record>& records() {
  static auto* const all = new std::map<cudnnBackendDescriptor_t, Record>;
  return *all;
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;  // enumerations and floats
  }
}

template <class T>
std::vector<T> values(const Record& record, cudnnBackendAttributeName_t name) {
  const auto found = record.attributes.find(name);
  if (found == record.attributes.end()) return {};
  std::vector<T> out(found->second.size() / sizeof(T));
  std::memcpy(out.data(), found->second.data(), out.size() * sizeof(T));
  return out;
}
template <class T>
T value(const Record& record, cudnnBackendAttributeName_t name, T otherwise = {}) {
  const auto all = values<T>(record, name);
  return all.empty() ? otherwise : all[0];
}
const Record& part(const Record& record, cudnnBackendAttributeName_t name) {
  return records().at(value<cudnnBackendDescriptor_t>(record, name));
}

struct Operand {
  const char* name;
  cudnnBackendAttributeName_t attribute;
};
const std::map<cudnnBackendDescriptorType_t, std::vector<Operand>> operands{
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
     {{"A", CUDNN_ATTR_OPERATION_MATMUL_ADESC},
      {"B", CUDNN_ATTR_OPERATION_MATMUL_BDESC},
      {"C", CUDNN_ATTR_OPERATION_MATMUL_CDESC}}},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
     {{"X", CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
      {"B", CUDNN_ATTR_OPERATION_POINTWISE_BDESC},
      {"T", CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
      {"Y", CUDNN_ATTR_OPERATION_POINTWISE_YDESC}}},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
     {{"X", CUDNN_ATTR_OPERATION_REDUCTION_XDESC}, {"Y", CUDNN_ATTR_OPERATION_REDUCTION_YDESC}}},
    {CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR,
     {{"Y", CUDNN_ATTR_OPERATION_RNG_YDESC},
      {"seed", CUDNN_ATTR_OPERATION_RNG_SEED},
      {"offset", CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC}}},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
     {{"X", CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, {"Y", CUDNN_ATTR_OPERATION_RESHAPE_YDESC}}}};

json tensor_of(const Record& t) {
  const auto type = value<cudnnDataType_t>(t, CUDNN_ATTR_TENSOR_DATA_TYPE);
  const bool is_virtual = value<char>(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
  return {{"name", std::to_string(value<std::int64_t>(t, CUDNN_ATTR_TENSOR_UNIQUE_ID))},
          {"dim", values<std::int64_t>(t, CUDNN_ATTR_TENSOR_DIMENSIONS)},
          {"stride", values<std::int64_t>(t, CUDNN_ATTR_TENSOR_STRIDES)},
          {"dataType", type == CUDNN_DATA_HALF                   ? "CUDNN_DATA_HALF"
                       : type == CUDNN_DATA_BFLOAT16             ? "CUDNN_DATA_BFLOAT16"
                       : type == CUDNN_DATA_INT64                ? "CUDNN_DATA_INT64"
                       : type == CUDNN_DATA_INT32 && !is_virtual ? "CUDNN_DATA_INT32"
                                                                 : "CUDNN_DATA_FLOAT"},  // virtual integers too
          {"isVirtual", is_virtual},
          {"isByValue", value<char>(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0},
          {"ptrAlignment", value<std::int64_t>(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)}};
}

json node_of(const Record& operation, std::map<std::string, json>& tensors) {
  json node{{"composite", int(operation.type)}};
  if (operation.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
    const Record& kind = part(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    node["mode"] = int(value<cudnnPointwiseMode_t>(kind, CUDNN_ATTR_POINTWISE_MODE));
    node["axis"] = value<std::int64_t>(kind, CUDNN_ATTR_POINTWISE_AXIS);
  }
  if (operation.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
    node["mode"] = int(value<cudnnReduceTensorOp_t>(part(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                                                    CUDNN_ATTR_REDUCTION_OPERATOR));
  if (operation.type == CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR)
    node["probability"] =
        value<double>(part(operation, CUDNN_ATTR_OPERATION_RNG_DESC), CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY);
  for (const auto& [name, attribute] : operands.at(operation.type)) {
    if (!operation.attributes.contains(attribute)) continue;
    const json tensor = tensor_of(part(operation, attribute));
    node[name] = tensor.at("name");
    const auto [known, is_new] = tensors.emplace(tensor.at("name"), tensor);
    MR_CHECK(is_new || known->second == tensor, "two tensors are called {}", known->first);
  }
  return node;
}

// Null for a graph without matrix products.
json plan_of(const Record& graph) {
  std::vector<const Record*> operations;
  bool products = false;
  for (const auto operation : values<cudnnBackendDescriptor_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    operations.push_back(&records().at(operation));
    products = products || operations.back()->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
  }
  if (!products) return nullptr;
  std::map<std::string, json> tensors;
  json nodes = json::array(), all = json::array();
  for (const Record* operation : operations) nodes.push_back(node_of(*operation, tensors));
  for (const auto& [name, tensor] : tensors) all.push_back(tensor);
  return {{"composite", true}, {"operationGraph", {{"tensors", all}, {"nodes", nodes}}}};
}

template <class T>
void answer(const T& result, std::int64_t* count, void* values) {
  *count = 1;
  if (values) std::memcpy(values, &result, sizeof result);
}

bool get_proposals(const Record& heuristics, std::int64_t* count, void* values) {
  const bool first = value<cudnnBackendHeurMode_t>(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
  *count = first ? engines : 0;
  for (int i = 0; values && i < *count; ++i) {
    json& plan = records().at(static_cast<cudnnBackendDescriptor_t*>(values)[i]).plan;
    plan = heuristics.plan;
    plan["engineId"] = i;
  }
  return true;
}

}  // namespace

void created(cudnnBackendDescriptor_t d, cudnnBackendDescriptorType_t type) {
  const std::lock_guard hold(mutex);
  records()[d] = {type, {}, nullptr};
}
void destroyed(cudnnBackendDescriptor_t d) {
  const std::lock_guard hold(mutex);
  records().erase(d);
}

bool set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         std::int64_t count, const void* values) {
  const std::lock_guard hold(mutex);
  Record& record = records()[d];
  const auto* bytes = static_cast<const char*>(values);
  record.attributes[name].assign(bytes, bytes + std::size_t(count) * size_of(type));
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) record.plan = part(record, name).plan;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) record.plan = part(record, name).plan;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
    json plan = json::parse(std::string(bytes, std::size_t(count)), nullptr, false);
    if (plan.is_object() && plan.contains("composite")) record.plan = std::move(plan);
  }
  return record.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && !record.plan.is_null();
}

bool finalize(cudnnBackendDescriptor_t d) {
  const std::lock_guard hold(mutex);
  Record& record = records()[d];
  if (record.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) record.plan = plan_of(record);
  return !record.plan.is_null() && record.type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
}

bool get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, std::int64_t requested, std::int64_t* count,
         void* values) {
  const std::lock_guard hold(mutex);
  Record& record = records()[d];
  if (record.plan.is_null()) return false;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      return get_proposals(record, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      records()[*static_cast<cudnnBackendDescriptor_t*>(values)].plan = record.plan;
      *count = 1;
      return true;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      answer(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, count, values);
      return true;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      answer(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, count, values);
      return true;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      answer(workspace_bytes, count, values);
      return true;
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: {
      const std::string text = record.plan.dump();
      *count = std::int64_t(text.size());
      if (values) std::memcpy(values, text.data(), std::min(text.size(), std::size_t(requested)));
      return true;
    }
    default:
      return false;
  }
}

}  // namespace millrace::test::composite
