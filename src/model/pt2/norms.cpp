// Normalisation.
#include <fmt/core.h>

#include "millrace/base/error.hpp"
#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

std::vector<Context::Source> scale_and_shift(const Call& call) {
  if (!call.has("weight") || !call.has("bias"))
    call.refuse("has no weight or no bias. norms without them are not supported yet");
  return {Context::as_stored(call.parameter("weight")), Context::as_stored(call.parameter("bias"))};
}

int buffer_of(const Call& call, const char* argument) {
  const Value v = call.value(argument);
  if (v.tensor < 0) call.refuse(fmt::format("has a '{}' that is no buffer", argument));
  return v.tensor;
}

// The axis after the rows, which is stored innermost.
int normalised(Context& c, const Call& call, Value& x) {
  if (x.axes.rank() < 2) call.refuse(fmt::format("normalises {}, which has no channels", x.axes.text()));
  return c.channels_last(call, x, x.axes.logical[1]);
}

Values batch_norm(Context& c, const Call& call) {
  Value x = call.computed("input");
  if (!call.flag("training", false))
    call.refuse("is in evaluation mode. call train() before the export, and freeze its parameters with train.freeze");
  if (!call.has("running_mean") || !call.has("running_var"))
    call.refuse("has no running statistics. leave track_running_stats at True");
  const double momentum = call.has("momentum") ? call.real("momentum", 0) : 0;
  if (!(momentum > 0 && momentum <= 1))
    call.refuse("has no momentum above 0 and up to 1. cumulative averages are not supported");
  const int src = normalised(c, call, x);
  const auto sources = scale_and_shift(call);
  const int out = c.builder.batch_norm(c.layer_name(call, sources[0].value.tensor), src, float(call.real("eps", 1e-5)));
  c.attach(call, sources);
  c.attach_statistics(call, buffer_of(call, "running_mean"), buffer_of(call, "running_var"), float(momentum));
  return {graph_value(out, x.axes)};
}

Values norm_of_groups(Context& c, const Call& call, std::int64_t groups) {
  Value x = call.computed("input");
  const int src = normalised(c, call, x);
  const std::int64_t channels = x.axes.size(1);
  if (groups < 1) groups = channels;
  const float epsilon = float(call.real("eps", 1e-5));
  if (!call.has("weight") && !call.has("bias"))
    return {graph_value(c.builder.group_norm(c.layer_name(call), src, groups, epsilon, false), x.axes)};
  const auto sources = scale_and_shift(call);
  const int out = c.builder.group_norm(c.layer_name(call, sources[0].value.tensor), src, groups, epsilon);
  c.attach(call, sources);
  return {graph_value(out, x.axes)};
}

Values group_norm(Context& c, const Call& call) { return norm_of_groups(c, call, call.integer("num_groups", 1)); }

Values instance_norm(Context& c, const Call& call) {
  if (!call.flag("use_input_stats", true) || call.has("running_mean"))
    call.refuse("has running statistics. leave track_running_stats at False");
  return norm_of_groups(c, call, 0);
}

Values over_last_axis(Context& c, const Call& call, LayerNormSpec::Kind kind) {
  Value x = call.computed("input");
  const Sizes shape = call.integers("normalized_shape");
  if (shape.size() != 1) call.refuse("normalises several axes at once. only the last one is possible");
  if (x.axes.rank() < 2 || x.axes.sizes().back() != shape[0])
    call.refuse(fmt::format("normalises {} elements of {}", shape[0], x.axes.text()));
  const bool rms = kind == LayerNormSpec::Kind::rms;
  if (rms && !call.has("eps")) call.refuse("has no eps. give one, such as eps=1e-6");
  if (!call.has("weight")) {
    if (call.has("bias")) call.refuse("has a bias and no weight, which is not supported");
    const int src = c.channels_last(call, x, x.axes.logical.back());
    const int out = c.builder.layer_norm(c.layer_name(call), src, kind, false, float(call.real("eps", 1e-5)), false);
    return {graph_value(out, x.axes)};
  }
  const int src = c.channels_last(call, x, x.axes.logical.back());
  const Value weight = call.parameter("weight");
  const bool bias = call.has("bias");
  const int out =
      c.builder.layer_norm(c.layer_name(call, weight.tensor), src, kind, bias, float(call.real("eps", 1e-5)));
  std::vector<Context::Source> sources{Context::as_stored(weight)};
  if (bias) sources.push_back(Context::as_stored(call.parameter("bias")));
  c.attach(call, sources);
  return {graph_value(out, x.axes)};
}

Values layer_norm(Context& c, const Call& call) { return over_last_axis(c, call, LayerNormSpec::Kind::layer); }
Values rms_norm(Context& c, const Call& call) { return over_last_axis(c, call, LayerNormSpec::Kind::rms); }

}  // namespace

void add_norms(Operations& all) {
  all["batch_norm"] = batch_norm;
  all["group_norm"] = group_norm;
  all["instance_norm"] = instance_norm;
  all["layer_norm"] = layer_norm;
  all["rms_norm"] = rms_norm;
}

}  // namespace millrace::pt2
