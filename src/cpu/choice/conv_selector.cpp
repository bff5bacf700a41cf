#include "cpu/choice/conv_selector.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "cpu/choice/time_methods.hpp"
#include "cpu/choice/waited.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn.hpp"
#include "cpu/winograd/rules.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/version.hpp"

namespace millrace::cpu {
namespace {

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != line.npos) return line.substr(line.find(": ") + 2);
  return "unknown";
}

std::string library_name() {
  const auto* v = dnnl::version();
  return fmt::format("onednn-{}.{}.{}", v->major, v->minor, v->patch);
}

std::string problem_text(const ConvSpec& s, ConvPass pass, const std::vector<ConvMethod>& candidates) {
  const Window& w = s.window;
  std::string text =
      fmt::format("conv {} {} {} -> {}, kernel {}, stride {}, pad {}, dilation {}, groups {}{} by", name_of(pass),
                  name_of(s.dtype), s.src.str(), s.out_channels, fmt::join(w.kernel, "x"), fmt::join(w.stride, "x"),
                  fmt::join(w.pad, "x"), fmt::join(w.dilation, "x"), s.groups, s.bias ? ", bias" : "");
  for (std::size_t i = 0; i < candidates.size(); ++i)
    text += fmt::format("{} {}", i > 0 ? "," : "", name_of(candidates[i]));
  return text;
}

}  // namespace

ConvSelector::ConvSelector(const ConvSelectorOptions& options) : options_(options) {
  if (!options.timing) return;
  const std::string model = processor_name(), program = fmt::format("millrace-{}", version);
  const std::string identity =
      fmt::format("{} with {}, {}, {}, {} threads", program, library_name(), onednn::isa_name(), model, thread_count());
  plans_.emplace(identity,
                 user_cache_file(
                     fmt::format("{}-{}-{}-{}-{}", program, library_name(), model, onednn::isa_name(), thread_count())),
                 options.plans);
}

PlanEntry ConvSelector::select(const ConvSpec& s, ConvPass pass, const std::vector<ConvMethod>& candidates) {
  if (spent_seconds_ >= options_.most_seconds) return {.plan = "", .seconds = 0, .persistent = false};
  const auto waited = [&] { return options_.waited ? options_.waited() : waited_seconds(team_threads()); };
  const auto begin = std::chrono::steady_clock::now();
  const double waited_before = waited();
  auto timed = time_conv(s, pass, candidates, options_.winograd);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double lost = waited_before < 0 ? 0 : std::max(0.0, waited() - waited_before);
  if (spent_seconds_ < options_.most_seconds && spent_seconds_ + seconds >= options_.most_seconds)
    log::warn(
        fmt::format("timing the methods of convolutions took {:.1f} s. fixed rules choose for the rest, which the "
                    "next start times",
                    spent_seconds_ + seconds));
  spent_seconds_ += seconds;
  if (timed.empty()) return {.plan = "", .seconds = 0, .persistent = false};
  PlanEntry out{.plan = text_of(timed), .seconds = timed[0].seconds};
  out.other_work = std::min(1.0, lost / (seconds * thread_count()));
  if (!out.disturbed()) return out;
  // The times say little, so the rule's method is used until they are measured again.
  const auto found =
      std::find_if(timed.begin(), timed.end(), [&](const TimedMethod& m) { return m.method == candidates[0]; });
  if (found != timed.end()) std::rotate(timed.begin(), found, found + 1);
  out.plan = text_of(timed);
  out.seconds = timed[0].seconds;
  return out;
}

bool ConvSelector::filters(DType dtype) const { return options_.winograd && winograd::is_candidate(dtype); }

ConvMethods ConvSelector::methods_by_rule() const {
  ConvMethods out;
  out.winograd = options_.winograd;
  return out;
}

ConvMethods ConvSelector::methods(const ConvSpec& s) {
  ConvMethods out = methods_by_rule();
  if (!plans_ || !timing_) return out;
  for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weights}) {
    if (pass != ConvPass::forward && s.mode == Mode::infer) continue;
    if (pass == ConvPass::data && !s.need_diff_src) continue;
    const std::vector<ConvMethod> candidates = candidates_for(s, pass, options_.winograd);
    if (candidates.size() < 2) continue;
    const PlanEntry entry = plans_->get(problem_text(s, pass, candidates), [&] { return select(s, pass, candidates); });
    const auto timed = read_timed_methods(entry.plan);
    if (timed.empty()) continue;
    out.of(pass) = timed[0].method;
    out.note += fmt::format(
        "{} {}{}", out.note.empty() ? "; timed:" : ";", describe(pass, timed),
        entry.disturbed() ? fmt::format(" (other work had {:.0f} % of the cores)", entry.other_work * 100) : "");
  }
  return out;
}

}  // namespace millrace::cpu
