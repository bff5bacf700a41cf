#include "millrace/data/index/sample_view.hpp"

#include <fmt/core.h>

#include "millrace/base/error.hpp"

namespace millrace {

void SampleView::check() const {
  const auto reject = [](bool set, const char* key, const char* kind) {
    if (set) fail(Exit::config, "{} does nothing without data.sample = {}", key, kind);
  };
  if (sample == SampleKind::patch && (patch < 1 || patch % 2 == 0))
    fail(Exit::config, "data.patch: {} is not the side of a square around a pixel. give an odd number", patch);
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
    reject(token_labels != TokenLabels::last, "data.token_labels", "tokens");
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
      return fmt::format("patches of {}x{}{}", patch, patch,
                         holdout > 0 ? fmt::format(" ({:g} of the labelled pixels held out)", holdout) : std::string());
    case SampleKind::pair:
      return fmt::format("pairs of rows t and t + {}", lead);
    case SampleKind::tokens:
      return fmt::format("windows of {} tokens and the next{}, every {}", window,
                         token_labels == TokenLabels::every ? " of each" : "", stride);
  }
  return "rows";
}

}  // namespace millrace
