#include "runs/step_line.hpp"

#include <string>

#include "millrace/base/flat_json.hpp"

namespace millrace {
namespace {

std::array<std::string, StepLine::field_count> make_names() {
  std::array<std::string, StepLine::field_count> names{"step",
                                                       "epoch",
                                                       "samples",
                                                       "loss",
                                                       "lr",
                                                       "grad_norm",
                                                       "loss_scale",
                                                       "skipped",
                                                       "samples_per_second",
                                                       "step_ms",
                                                       "unread_samples",
                                                       "speed_of_light"};
  for (std::size_t p = 0; p < phase_count; ++p)
    names[StepLine::first_phase + p] = std::string(name_of(Phase(p))) + "_ms";
  return names;
}

}  // namespace

bool StepLine::parse(std::string_view line) {
  static const auto names = make_names();
  present_.reset();
  std::size_t expected = 0;  // most fields come in the order of `names`, so the search starts behind the last one
  const bool valid = parse_flat_json(line, [&](std::string_view key, double value) {
    for (std::size_t k = 0; k < field_count; ++k) {
      const std::size_t field = (expected + k) % field_count;
      if (names[field] != key) continue;
      values_[field] = value;
      present_.set(field);
      expected = field + 1;
      return;
    }
  });
  return valid && value(step, 0) >= 1;
}

}  // namespace millrace
