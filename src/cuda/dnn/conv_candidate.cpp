#include "cuda/dnn/conv_candidate.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cuda/dnn/conv.hpp"
#include "cuda/plans/fusion_cost.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cuda {
namespace {

using cudnn::Choice, cudnn::ConvProblem, cudnn::Cudnn, cudnn::Direction;

ConvProblem problem(const ConvSpec& s, Direction direction, std::int64_t channels) {
  ConvProblem p;
  p.direction = direction;
  p.dtype = s.dtype;
  p.window = s.window;
  p.src = s.src;
  p.weight = s.weight();
  p.dst = s.dst();
  p.src[-1] = channels;
  if (s.groups == 1) p.weight[-1] = channels;
  return p;
}

// Whether engines for 16-bit types would need padding channels.
bool narrow(const ConvSpec& s) { return s.dtype != DType::f32 && s.groups == 1 && s.src[-1] % 8 != 0; }

std::optional<ConvCandidate> find_candidate(const ConvSpec& s, std::int64_t channels, Cudnn& library) {
  ConvCandidate candidate;
  candidate.channels = channels;
  const std::size_t copy =
      channels == s.src[-1] ? 0 : std::size_t(s.src.count() / s.src[-1] * channels) * size_of(s.dtype);
  const double rate = library.options().copy_bytes_per_second;
  const auto count = [&](const std::optional<Choice>& choice) {
    candidate.seconds += choice->seconds + (copy > 0 ? 2 * double(copy) / rate : 0);
    candidate.workspace = std::max(candidate.workspace, copy + choice->plan->workspace_bytes());
    candidate.timed = candidate.timed && choice->seconds > 0 && (copy == 0 || rate > 0);
  };
  if (s.bias) {
    candidate.forward = library.choose(forward_problem(s, channels, true));
    candidate.bias = candidate.forward.has_value();
  }
  if (!candidate.forward) candidate.forward = library.choose(forward_problem(s, channels, false));
  if (!candidate.forward) return std::nullopt;
  count(candidate.forward);
  if (s.mode == Mode::infer) return candidate;
  candidate.weights = library.choose(weights_problem(s, channels));
  if (!candidate.weights) return std::nullopt;
  count(candidate.weights);
  return candidate;
}

// Compares the fused problem with the plain one and the passes over memory that fusion saves, which read or write so
// many elements.
std::string why_slower(const ConvProblem& fused, double pass_elements, Cudnn& library) {
  const auto fused_seconds = library.seconds(fused);
  if (!fused_seconds)
    return fmt::format("cuDNN {} has no engine for it in {}", cudnnGetVersion(), name_of(fused.dtype));
  if (*fused_seconds == 0) return "";
  ConvProblem plain = fused;
  plain.sums = plain.norm = plain.add = false;
  return why_fusion_is_slower(*fused_seconds, library.seconds(plain).value_or(0),
                              pass_elements * double(size_of(fused.dtype)), library.options().copy_bytes_per_second);
}

// A separate pass reads the gradient and what is added, and writes the sum.
std::string why_not_accumulated(const ConvSpec& s, Cudnn& library) {
  if (s.mode != Mode::train || !s.need_diff_src) return "it computes no gradient of its source";
  return why_slower(data_problem(s), 3 * double(s.src.count()), library);
}

std::string why_not_fused_depthwise(const ConvSpec& s) {
  if (s.produces_sums || s.produces_diff_sums || s.normalises_src) return depthwise_sums_no_norm;
  return s.mode == Mode::train && s.need_diff_src ? "" : "it computes no gradient of its source";
}

// Compares both directions that read src with the plain ones and the pass of the norm, which reads its source and
// writes its result.
std::string why_not_normalised(const ConvSpec& s, Cudnn& library) {
  if (narrow(s)) return fmt::format("its {} channels are padded", s.src[-1]);
  double fused_seconds = 0, plain_seconds = 0;
  bool timed = true;
  for (const ConvProblem& fused : {forward_problem(s, s.src[-1], false), weights_problem(s, s.src[-1])}) {
    const auto seconds = library.seconds(fused);
    if (!seconds)
      return fmt::format("cuDNN {} has no engine for {} in {}", cudnnGetVersion(),
                         fused.direction != Direction::forward ? "its weight gradient"
                         : fused.sums                          ? "it with sums"
                                                               : "it without sums",
                         name_of(s.dtype));
    ConvProblem plain = fused;
    plain.normalise = false;
    const double plain_time = library.seconds(plain).value_or(0);
    timed = timed && *seconds > 0 && plain_time > 0;
    fused_seconds += *seconds;
    plain_seconds += plain_time;
  }
  if (!timed) return "";
  return why_fusion_is_slower(fused_seconds, plain_seconds, 2 * double(s.src.count()) * double(size_of(s.dtype)),
                              library.options().copy_bytes_per_second);
}

}  // namespace

ConvProblem forward_problem(const ConvSpec& s, std::int64_t channels, bool bias) {
  ConvProblem p = problem(s, Direction::forward, channels);
  p.bias = bias;
  p.sums = s.produces_sums;
  p.normalise = s.normalises_src;
  return p;
}

ConvProblem data_problem(const ConvSpec& s) {
  ConvProblem p = problem(s, Direction::backward_data, s.src[-1]);
  p.norm = s.produces_diff_sums;
  p.add = s.accumulates_diff_src;
  return p;
}

ConvProblem weights_problem(const ConvSpec& s, std::int64_t channels) {
  ConvProblem p = problem(s, Direction::backward_weights, channels);
  p.normalise = s.normalises_src;
  return p;
}

ConvCandidate best_candidate(const ConvSpec& s, Cudnn& library) {
  const std::int64_t own = s.src[-1];
  std::vector<std::int64_t> widths{own};
  if (narrow(s) && !s.produces_sums && s.padded_channels == 0) {
    if (own < 4) widths.push_back(4);
    widths.push_back((own + 7) / 8 * 8);
  }
  std::optional<ConvCandidate> best;
  for (const std::int64_t width : widths) {
    auto candidate = find_candidate(s, width, library);
    if (!candidate) continue;
    const bool better = !best || (best->timed && candidate->timed ? candidate->seconds < best->seconds
                                                                  : candidate->workspace < best->workspace);
    if (better) best = std::move(candidate);
  }
  if (!best)
    fail(Exit::config,
         "cuDNN {} has no engine for the convolution {} -> {} in {} ({} bytes). choose another run.precision, or other "
         "channels or groups",
         cudnnGetVersion(), s.src.str(), s.dst().str(), name_of(s.dtype), library.options().rules.key());
  return std::move(*best);
}

std::int64_t padded_channels(const ConvSpec& spec, Cudnn& library) {
  if (!narrow(spec)) return 0;
  ConvSpec wide = spec;
  wide.src[-1] = best_candidate(spec, library).channels;
  return wide.src[-1] - spec.src[-1];
}

std::string why_not_fused(const ConvSpec& s, Cudnn& library) {
  if (is_depthwise(s)) return why_not_fused_depthwise(s);
  if (s.accumulates_diff_src) return why_not_accumulated(s, library);
  if (s.normalises_src) return why_not_normalised(s, library);
  const std::int64_t channels = s.produces_sums ? s.out_channels : s.src[-1];
  if (s.produces_sums && s.bias) return "cuDNN cannot compute sums of a result with a bias";
  if (s.produces_sums && narrow(s)) return fmt::format("its {} channels are padded", s.src[-1]);
  if (channels % 4 != 0) return fmt::format("{} channels are not a multiple of 4, which cuDNN needs", channels);
  const ConvProblem fused = s.produces_sums ? forward_problem(s, s.src[-1], false) : data_problem(s);
  return why_slower(fused, s.produces_sums ? double(s.dst().count()) : 2 * double(s.src.count()), library);
}

}  // namespace millrace::cuda
