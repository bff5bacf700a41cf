// The engines that cuDNN proposes for a graph, and which of them the rules allow.
#include "cuda/dnn/cudnn_graph.hpp"

#include <algorithm>

namespace millrace::cuda::cudnn {

const Descriptor& Graph::keep(Descriptor d) {
  parts_.push_back(std::move(d));
  return parts_.back();
}

void Graph::operation(Descriptor d) {
  d.finalize();
  operations_.push_back(keep(std::move(d)).raw());
}

void Graph::finish() {
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::int64_t(operations_.size()),
             operations_.data());
  if (target_.handle_) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target_.handle_);
  graph_.finalize();
}

std::vector<Plan> Graph::plans(const PlanRules& rules, std::size_t max_plans) const {
  for (const auto compiled : {Compiled::ahead, Compiled::runtime_compiled})
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      if (auto plans = collect(mode, compiled, rules, max_plans); !plans.empty()) return plans;
  return {};
}

Graph::Proposals Graph::proposals(cudnnBackendHeurMode_t mode) const {
  Proposals out{Descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), {}};
  Descriptor& heuristics = out.heuristics;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!target_.handle_) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target_.properties_);
  if (!heuristics.try_finalize()) return out;
  std::int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                               &count, nullptr) != CUDNN_STATUS_SUCCESS)
    return out;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    out.configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(out.configs.back().raw());
  }
  check_prepared(cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data()),
                 "results of the heuristics");
  out.configs.resize(std::size_t(count));
  return out;
}

std::optional<Plan> Graph::plan_of(Descriptor config) const {
  Descriptor d(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target_.handle_)
    d.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target_.handle_);
  else
    d.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target_.properties_);
  d.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  return Plan::finished(std::move(d), std::move(config));
}

std::vector<Plan> Graph::collect(cudnnBackendHeurMode_t mode, Compiled compiled, const PlanRules& rules,
                                 std::size_t max_plans) const {
  std::vector<Plan> plans;
  auto proposed = proposals(mode);
  for (Descriptor& config : proposed.configs) {
    if (plans.size() >= max_plans) break;
    if (!allowed(config, compiled, rules)) continue;
    if (auto plan = plan_of(std::move(config)); plan && plan->workspace_bytes() <= rules.workspace_limit) {
      plan->runtime_compiled_ = compiled == Compiled::runtime_compiled;
      plans.push_back(std::move(*plan));
    }
  }
  return plans;
}

Graph::RuntimeCompiledEngines Graph::runtime_compiled(const PlanRules& rules) const {
  RuntimeCompiledEngines out;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    auto proposed = proposals(mode);
    for (Descriptor& config : proposed.configs) {
      if (!allowed(config, Compiled::runtime_compiled, rules)) continue;
      ++out.proposed;
      if (plan_of(std::move(config)))
        ++out.finished;
      else
        out.why_not = last_error();
    }
  }
  return out;
}

// Whether the rules allow an engine, from the notes that cuDNN gives about it. Additions in less than float32 are never
// allowed.
bool Graph::allowed(const Descriptor& config, Compiled compiled, const PlanRules& rules) const {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  std::int64_t count = 0;
  check_prepared(cudnnBackendGetAttribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                          &count, &raw),
                 "engine of a configuration");
  cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  check_prepared(cudnnBackendGetAttribute(engine.raw(), CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                          CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, behavior),
                 "behavior notes of an engine");
  const bool runtime_compiled =
      std::find(behavior, behavior + count, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior + count;
  if (runtime_compiled != (compiled == Compiled::runtime_compiled)) return false;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  check_prepared(cudnnBackendGetAttribute(engine.raw(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
                 "numerical notes of an engine");
  const bool exact = dtype_ == DType::f32 && !rules.tf32;
  return std::none_of(notes, notes + count, [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return exact;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return rules.deterministic;
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return exact || rules.deterministic;
      default:
        return false;
    }
  });
}

}  // namespace millrace::cuda::cudnn
