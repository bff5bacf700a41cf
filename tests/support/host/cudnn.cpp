// Replaces some functions of cuDNN in a test binary. Descriptors, heuristics and plans are those of the library, made
// for the description of a GPU, except for those of composite.hpp. To execute a plan, this file reads the JSON text of
// the plan and computes its operations on the host in double precision. It first overwrites the workspace of the plan.
#include "support/host/cudnn.hpp"

#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "millrace/base/error.hpp"
#include "support/host/composite.hpp"
#include "support/host/convolve.hpp"

namespace {

using nlohmann::json;
using namespace millrace;
using namespace millrace::test;

struct Pack {
  Numbers ids;
  std::vector<void*> pointers;
  void* workspace = nullptr;
};
std::map<cudnnBackendDescriptor_t, Pack>& packs() {
  static std::map<cudnnBackendDescriptor_t, Pack> all;
  return all;
}

DType type_of(const std::string& name) {
  if (name == "CUDNN_DATA_INT64") return DType::i64;
  if (name == "CUDNN_DATA_INT32") return DType::i32;
  return name == "CUDNN_DATA_FLOAT" ? DType::f32 : name == "CUDNN_DATA_HALF" ? DType::f16 : DType::bf16;
}

std::int64_t of_channel(const View& v, const Numbers& at) { return at[1] * v.strides[1]; }

void combine(const std::string& mode, const View& x, const View& b, View& y) {
  each(y.dims, [&](const Numbers& at) {
    const double left = x.get(offset(x, at)), right = b.get(of_channel(b, at));
    MR_CHECK(mode == "CUDNN_POINTWISE_ADD" || mode == "CUDNN_POINTWISE_SUB" || mode == "CUDNN_POINTWISE_MUL", "{}",
             mode);
    y.set(offset(y, at), mode == "CUDNN_POINTWISE_MUL"   ? left * right
                         : mode == "CUDNN_POINTWISE_SUB" ? left - right
                                                         : left + right);
  });
}

// Sums a(index) and b(index) over each channel.
template <class A, class B>
void sum_channels(const View& like, View& sum_a, View& sum_b, const A& a, const B& b) {
  std::vector<double> sums[2];
  for (auto& s : sums) s.resize(std::size_t(like.dims[1]), 0.0);
  each(like.dims, [&](const Numbers& at) {
    sums[0][std::size_t(at[1])] += a(at);
    sums[1][std::size_t(at[1])] += b(at);
  });
  for (std::int64_t c = 0; c < like.dims[1]; ++c) {
    sum_a.set(c * sum_a.strides[1], sums[0][std::size_t(c)]);
    sum_b.set(c * sum_b.strides[1], sums[1][std::size_t(c)]);
  }
}

void run(const json& graph, const Pack& pack) {
  std::map<std::string, View> views;
  for (const json& t : graph.at("tensors")) {
    View v{t.at("dim"), t.at("stride"), type_of(t.at("dataType")), nullptr, {}};
    for (std::size_t i = 0; i < pack.ids.size(); ++i)
      if (std::to_string(pack.ids[i]) == t.at("name").get<std::string>()) v.data = pack.pointers[i];
    MR_CHECK((v.data == nullptr) == t.at("isVirtual").get<bool>(), "only tensors in memory have a pointer");
    if (!v.data) v.kept.resize(std::size_t(v.extent()));
    views[t.at("name")] = std::move(v);
  }
  for (const json& node : graph.at("nodes")) {
    if (node.contains("composite")) {
      composite::compute(node, views);
      continue;
    }
    const auto of = [&](const char* name) -> View& { return views.at(node.at(name)); };
    const auto value_or_gradient = [&](const char* name) -> View& {
      return views.at(node.at(node.contains(name) ? name : "d" + std::string(name)));
    };
    const std::string operation = node.at("operation");
    const auto is = [&](const char* what) { return operation.find(what) != operation.npos; };
    if (is("POINTWISE")) {
      const std::string mode = node.at("pointwiseMode");
      if (mode == "CUDNN_POINTWISE_RELU_FWD") {
        View &x = of("X"), &y = of("Y");
        each(y.dims, [&](const Numbers& at) { y.set(offset(y, at), std::max(x.get(offset(x, at)), 0.0)); });
        continue;
      }
      if (mode != "CUDNN_POINTWISE_RELU_BWD") {
        combine(mode, of("X"), of("B"), of("Y"));
        continue;
      }
      View &x = of("X"), &dy = of("dY"), &dx = of("dX");
      each(dx.dims,
           [&](const Numbers& at) { dx.set(offset(dx, at), x.get(offset(x, at)) > 0 ? dy.get(offset(dy, at)) : 0); });
    } else if (is("GEN_STATS")) {
      View& x = of("X");
      const auto value = [&](const Numbers& at) { return x.get(offset(x, at)); };
      sum_channels(x, of("Sum"), of("SqSum"), value, [&](const Numbers& at) { return value(at) * value(at); });
    } else if (is("BN_BWD_WEIGHTS")) {
      View &x = of("xDesc"), &g = of("dyDesc"), &mean = of("BNmeanDesc"), &inverse = of("BNinvstdDesc");
      const auto gradient = [&](const Numbers& at) { return g.get(offset(g, at)); };
      const auto norm = [&](const Numbers& at) {
        return (x.get(offset(x, at)) - mean.get(of_channel(mean, at))) * inverse.get(of_channel(inverse, at));
      };
      sum_channels(
          x, of("dGammaDesc"), of("dBetaDesc"), [&](const Numbers& at) { return gradient(at) * norm(at); }, gradient);
      for (const char* unused : {"eqDyScaleDesc", "eqXScaleDesc", "eqBiasDesc"})
        for (std::int64_t c = 0; c < x.dims[1]; ++c) of(unused).set(c, std::nan(""));
    } else {
      View &x = value_or_gradient("X"), &w = value_or_gradient("W"), &y = value_or_gradient("Y");
      convolve({node.at("pad"), node.at("stride"), node.at("dilation")}, x, w, y,
               node.contains("dX")   ? x
               : node.contains("dW") ? w
                                     : y,
               node.at("beta"));
    }
  }
}

// The graph of a plan. Parsed once: a training runs each plan thousands of times.
std::shared_ptr<const json> graph_of(cudnnBackendDescriptor_t plan) {
  static std::map<std::string, std::shared_ptr<const json>> known;
  std::int64_t size = 0, count = 0;
  const auto name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
  cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, 0, &size, nullptr);
  std::string text(std::size_t(size), ' ');
  cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, size, &count, text.data());
  auto& graph = known[text];
  if (!graph)
    graph = std::make_shared<json>(json::parse(text.substr(0, text.find_last_of('}') + 1)).at("operationGraph"));
  return graph;
}

// The memory that a plan reads and writes.
std::vector<test::PlanMemory> memory_of(const json& graph, const Pack& pack, std::size_t workspace_bytes) {
  std::vector<test::PlanMemory> all;
  for (const json& t : graph.at("tensors"))
    for (std::size_t i = 0; i < pack.ids.size(); ++i)
      if (std::to_string(pack.ids[i]) == t.at("name").get<std::string>() && !t.value("isByValue", false)) {
        const View v{t.at("dim"), t.at("stride"), type_of(t.at("dataType")), nullptr, {}};
        all.push_back({pack.pointers[i], std::size_t(v.extent()) * size_of(v.type), false,
                       t.at("ptrAlignment").get<std::size_t>()});
      }
  if (workspace_bytes > 0) all.push_back({pack.workspace, workspace_bytes, true});
  return all;
}

// Values in memory of the host are read when a plan is enqueued.
std::map<std::size_t, float> host_values(const json& graph, const Pack& pack) {
  std::map<std::size_t, float> values;
  for (const json& t : graph.at("tensors"))
    for (std::size_t i = 0; i < pack.ids.size(); ++i)
      if (std::to_string(pack.ids[i]) == t.at("name").get<std::string>() && t.value("isByValue", false))
        values[i] = *static_cast<const float*>(pack.pointers[i]);
  return values;
}

template <class Function>
Function* real(const char* name) {
  MR_CHECK(cudnnGetVersion() > 0);  // the linker leaves out a library of which no function is called
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

using SetAttribute = decltype(&cudnnBackendSetAttribute);

// A handle stands for the described GPU, which other attributes name.
cudnnStatus_t set_handle(SetAttribute real, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name) {
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  MR_CHECK(name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE, "a handle as attribute {}", int(name));
  void* gpu = test::described_gpu();
  return real(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
}

}  // namespace

extern "C" {

cudnnStatus_t CUDNNWINAPI cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count,
                                                   const void* values) {
  static const auto real = ::real<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute");
  if (composite::set(d, name, type, count, values)) return CUDNN_STATUS_SUCCESS;
  if (type == CUDNN_TYPE_HANDLE) return set_handle(real, d, name);
  if (void* gpu = name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH ? test::described_gpu() : nullptr)
    real(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
  const auto* first = static_cast<const std::int64_t*>(values);
  if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) packs()[d].ids.assign(first, first + count);
  if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
    packs()[d].pointers.assign(static_cast<void* const*>(values), static_cast<void* const*>(values) + count);
  if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE) packs()[d].workspace = *static_cast<void* const*>(values);
  return real(d, name, type, count, values);
}

cudnnStatus_t CUDNNWINAPI cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* d) {
  static const auto real = ::real<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor");
  const cudnnStatus_t status = real(type, d);
  if (status == CUDNN_STATUS_SUCCESS) composite::created(*d, type);
  return status;
}
cudnnStatus_t CUDNNWINAPI cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  static const auto real = ::real<decltype(cudnnBackendDestroyDescriptor)>("cudnnBackendDestroyDescriptor");
  composite::destroyed(d);
  return real(d);
}
cudnnStatus_t CUDNNWINAPI cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
  static const auto real = ::real<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize");
  return composite::finalize(d) ? CUDNN_STATUS_SUCCESS : real(d);
}
cudnnStatus_t CUDNNWINAPI cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                                   void* values) {
  static const auto real = ::real<decltype(cudnnBackendGetAttribute)>("cudnnBackendGetAttribute");
  return composite::get(d, name, requested, count, values) ? CUDNN_STATUS_SUCCESS
                                                           : real(d, name, type, requested, count, values);
}

cudnnStatus_t CUDNNWINAPI cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                              cudnnBackendDescriptor_t pack_descriptor) {
  std::int64_t bytes = 0, count = 0;
  cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
  const Pack pack = packs().at(pack_descriptor);
  const auto graph = graph_of(plan);
  test::execute_plan(handle, memory_of(*graph, pack, std::size_t(bytes)),
                     [graph, pack, bytes, values = host_values(*graph, pack)]() mutable {
                       if (bytes) std::memset(pack.workspace, 0xff, std::size_t(bytes));
                       Pack own = pack;
                       for (auto& [i, value] : values) own.pointers[i] = &value;
                       run(*graph, own);
                     });
  return CUDNN_STATUS_SUCCESS;
}
}
