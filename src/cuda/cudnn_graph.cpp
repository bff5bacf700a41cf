#include "cudnn_graph.hpp"

#include <algorithm>

#include "millrace/base/types.hpp"

namespace millrace::cuda::cudnn {
namespace {

using Numbers = std::vector<std::int64_t>;

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDNN_DATA_FLOAT;
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    default:
      fail(Exit::config, "cuDNN does not convolve in ", name_of(dtype), ". choose fp32, bf16 or fp16");
  }
}

// (N, spatial..., C) in memory, (N, C, spatial...) to cuDNN; one spatial dimension becomes two with a height of 1.
Descriptor tensor(Shape shape, DType dtype, Role role) {
  if (shape.rank == 3) shape = {shape[0], 1, shape[1], shape[2]};
  Numbers dims{shape[0], shape[-1]}, strides{shape.row_count(), 1};
  std::int64_t stride = shape.row_count();
  for (int axis = 1; axis < shape.rank - 1; ++axis) {
    stride /= shape[axis];
    dims.push_back(shape[axis]), strides.push_back(stride);
  }
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(dtype));
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t(role));
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t(16));
  if (role == conv_role) {
    const bool is_virtual = true;
    d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  }
  d.finalize();
  return d;
}

Descriptor convolution(const Window& w) {
  Numbers pad, stride, dilation;
  if (w.rank == 1) pad = {0}, stride = {1}, dilation = {1};
  for (std::size_t axis = 0; axis < std::size_t(w.rank); ++axis)
    pad.push_back(w.pad[axis]), stride.push_back(w.stride[axis]), dilation.push_back(w.dilation[axis]);
  const auto mode = CUDNN_CROSS_CORRELATION;
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t(pad.size()));
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pad);
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pad);
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation);
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
  d.finalize();
  return d;
}

// The attributes of the three convolution operations, which differ in name alone.
struct ConvNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t conv, src, weight, dst, alpha, beta;
};

ConvNames names_of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Direction::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

}  // namespace

ConvGraph::ConvGraph(const Target& target, const ConvProblem& p) : target_(target), dtype_(p.dtype) {
  parts_.reserve(16);
  const Descriptor& src = keep(tensor(p.src, p.dtype, src_role));
  const Descriptor& weight = keep(tensor(p.weight, p.dtype, weight_role));
  const Descriptor& dst = keep(tensor(p.dst, p.dtype, dst_role));
  const Descriptor& sum = p.bias ? keep(tensor(p.dst, DType::f32, conv_role)) : dst;
  const ConvNames names = names_of(p.direction);
  Descriptor conv(names.type);
  conv.set(names.conv, keep(convolution(p.window)));
  conv.set(names.src, src), conv.set(names.weight, weight), conv.set(names.dst, sum);
  conv.set(names.alpha, 1.0f), conv.set(names.beta, p.add ? 1.0f : 0.0f);
  conv.finalize();
  std::vector<cudnnBackendDescriptor_t> operations{keep(std::move(conv)).raw()};
  if (p.bias) {
    Shape per_channel = p.dst;
    for (int axis = 0; axis < per_channel.rank - 1; ++axis) per_channel[axis] = 1;
    const auto mode = CUDNN_POINTWISE_ADD;
    Descriptor sum_of(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    sum_of.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    sum_of.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    sum_of.finalize();
    Descriptor add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    add.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(sum_of)));
    add.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sum);
    add.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, keep(tensor(per_channel, p.dtype, bias_role)));
    add.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, dst);
    add.finalize();
    operations.push_back(keep(std::move(add)).raw());
  }
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::int64_t(operations.size()),
             operations.data());
  if (target_.handle_) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target_.handle_);
  graph_.finalize();
}

const Descriptor& ConvGraph::keep(Descriptor d) {
  MR_CHECK(parts_.size() < parts_.capacity(), "references into parts_");
  parts_.push_back(std::move(d));
  return parts_.back();
}

std::vector<Plan> ConvGraph::plans(const PlanRules& rules, std::size_t most) const {
  for (const auto compiled : {Compiled::ahead, Compiled::at_run_time})
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      if (auto plans = collect(mode, compiled, rules, most); !plans.empty()) return plans;
  return {};
}

std::vector<Plan> ConvGraph::collect(cudnnBackendHeurMode_t mode, Compiled compiled, const PlanRules& rules,
                                     std::size_t most) const {
  std::vector<Plan> plans;
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!target_.handle_) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target_.properties_);
  if (!heuristics.try_finalize()) return plans;
  std::int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                               &count, nullptr) != CUDNN_STATUS_SUCCESS)
    return plans;
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configs.back().raw());
  }
  prepared(cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                    count, &count, raw.data()),
           "results of the heuristics");
  configs.resize(std::size_t(count));
  for (Descriptor& config : configs) {
    if (plans.size() >= most) break;
    if (!allowed(config, compiled, rules)) continue;
    Descriptor d(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (target_.handle_)
      d.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target_.handle_);
    else
      d.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target_.properties_);
    d.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (auto plan = Plan::finished(std::move(d), std::move(config));
        plan && plan->workspace_bytes() <= rules.workspace_limit)
      plans.push_back(std::move(*plan));
  }
  return plans;
}

// By the engine's notes. Sums in less than float32 are never allowed.
bool ConvGraph::allowed(const Descriptor& config, Compiled compiled, const PlanRules& rules) const {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  std::int64_t count = 0;
  prepared(cudnnBackendGetAttribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                    &raw),
           "engine of a configuration");
  cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  prepared(cudnnBackendGetAttribute(engine.raw(), CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                    CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, behavior),
           "behavior notes of an engine");
  const bool at_run_time =
      std::find(behavior, behavior + count, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior + count;
  if (at_run_time != (compiled == Compiled::at_run_time)) return false;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  prepared(cudnnBackendGetAttribute(engine.raw(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
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
