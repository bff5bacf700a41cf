#include "millrace/data/index/sample_view.hpp"

#include "millrace/base/error.hpp"

namespace millrace {

void SampleView::check() const {
  const auto reject = [](bool set, const char* key, const char* kind) {
    if (set) fail(Exit::config, key, " does nothing without data.sample = ", kind);
  };
  if (sample == SampleKind::patch && (patch < 1 || patch % 2 == 0))
    fail(Exit::config, "data.patch: ", patch, " is not the side of a square around a pixel. give an odd number");
  if (sample != SampleKind::patch) {
    reject(patch != 0, "data.patch", "patch");
    reject(holdout != 0, "data.holdout", "patch");
  }
  if (sample == SampleKind::tokens && window < 1)
    fail(Exit::config, "data.window: a sample of tokens needs a length. give the number of tokens per sample");
  if (sample != SampleKind::tokens) {
    reject(window != 0, "data.window", "tokens");
    reject(stride != 1, "data.stride", "tokens");
    reject(vocabulary != 0, "data.vocabulary", "tokens");
  }
  if (sample != SampleKind::pair) reject(lead != 1, "data.lead", "pair");
}

std::int64_t windows_of(const Shape& array, const SampleView& v) {
  return array[-1] > v.window ? (array[-1] - v.window - 1) / v.stride + 1 : 0;
}

std::string SampleView::str() const {
  switch (sample) {
    case SampleKind::rows:
      break;
    case SampleKind::patch:
      return cat("patches of ", patch, "x", patch,
                 holdout > 0 ? cat(" (", holdout, " of the labelled pixels held out)") : std::string());
    case SampleKind::pair:
      return cat("pairs of rows t and t + ", lead);
    case SampleKind::tokens:
      return cat("windows of ", window, " tokens and the next, every ", stride);
  }
  return "rows";
}

}  // namespace millrace
