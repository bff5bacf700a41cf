#include "cpu/choice/conv_selector.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <fstream>

#include "cpu/choice/time_methods.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/conv/kn2row_conv.hpp"
#include "cpu/onednn/onednn.hpp"
#include "cpu/winograd/tiles.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t most_kn2row_pixels = 256;  // of an image

constexpr std::pair<ConvMethod, const char*> method_names[] = {
    {ConvMethod::rule, "rule"},     {ConvMethod::direct, "direct"},     {ConvMethod::tiles, "tiles"},
    {ConvMethod::kn2row, "kn2row"}, {ConvMethod::winograd_2, "F(2x2)"}, {ConvMethod::winograd_4, "F(4x4)"}};

const char* method_name(ConvMethod method) {
  for (const auto& [known, name] : method_names)
    if (known == method) return name;
  return "rule";
}

// "F(4x4) F(4x4) kn2row": forward, data, weights.
std::string text_of(const ConvMethods& m) {
  return fmt::format("{} {} {}", method_name(m.forward), method_name(m.data), method_name(m.weights));
}

// Unknown words, as those of a later release, give `rule`.
void read_methods(std::string_view text, ConvMethods& to) {
  for (ConvMethod* method : {&to.forward, &to.data, &to.weights}) {
    const std::string_view word = text.substr(0, text.find(' '));
    for (const auto& [known, name] : method_names)
      if (word == name) *method = known;
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
}

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

std::string problem_text(const ConvSpec& s, const std::vector<ConvMethod>& candidates) {
  const Window& w = s.window;
  std::string text =
      fmt::format("conv {} -> {}, kernel {}, stride {}, pad {}, dilation {}{}{}{} by", s.src.str(), s.out_channels,
                  fmt::join(w.kernel, "x"), fmt::join(w.stride, "x"), fmt::join(w.pad, "x"), fmt::join(w.dilation, "x"),
                  s.bias ? ", bias" : "", s.mode == Mode::infer ? ", inference" : "", s.need_diff_src ? "" : ", first");
  for (const ConvMethod method : candidates) text += fmt::format(" {}", method_name(method));
  return text;
}

// Leaves out what cannot win, so that timing is short: kn2row for large images, and F(2x2) unless it needs about as few
// multiplications as F(4x4), as for images of 5x5 pixels.
std::vector<ConvMethod> candidates_for(const ConvSpec& s, bool winograd) {
  std::vector<ConvMethod> out{ConvMethod::direct};
  if (s.dtype != DType::f32) return out;
  if (onednn::prefers_float_matmul()) out = {ConvMethod::rule, ConvMethod::direct};
  const Shape dst = s.dst();
  if (Kn2rowConv::supports(s) && dst.count() <= most_kn2row_pixels * dst[0] * dst[-1])
    out.push_back(ConvMethod::kn2row);
  if (!winograd || !winograd::supports(s)) return out;
  out.push_back(ConvMethod::winograd_4);
  const auto multiplications = [&](std::int64_t m) {
    const winograd::Tiles tiles(s, ConvPart::Of::forward, m);
    return double(tiles.count() * tiles.tile * tiles.tile);
  };
  if (multiplications(2) <= 1.3 * multiplications(4)) out.push_back(ConvMethod::winograd_2);
  return out;
}

}  // namespace

ConvSelector::ConvSelector(const ConvSelectorOptions& options) : winograd_(options.winograd) {
  if (!options.timing) return;
  const std::string model = processor_name();
  const std::string identity =
      fmt::format("{} with {}, {}, {} threads", library_name(), onednn::isa_name(), model, thread_count());
  plans_.emplace(identity,
                 user_cache_file(fmt::format("{}-{}-{}-{}", library_name(), model, onednn::isa_name(), thread_count())),
                 options.plans);
}

ConvMethods ConvSelector::methods(const ConvSpec& s) {
  ConvMethods out;
  out.winograd = winograd_;
  const std::vector<ConvMethod> candidates = candidates_for(s, winograd_);
  if (!plans_ || !timing_ || candidates.size() < 2) return out;
  const PlanEntry entry = plans_->get(problem_text(s, candidates), [&] {
    const TimedMethods timed = time_conv_methods(s, candidates, winograd_);
    return PlanEntry{.plan = text_of(timed.methods), .seconds = timed.seconds};
  });
  read_methods(entry.plan, out);
  out.winograd = false;  // a part by rule was timed without it
  return out;
}

}  // namespace millrace::cpu
