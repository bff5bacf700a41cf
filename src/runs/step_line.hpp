// StepLine: one line of metrics.jsonl as numbers by field. It is reused from line to line, so that a file of millions
// of lines is read without an allocation for each.
#pragma once
#include <array>
#include <bitset>
#include <cstddef>
#include <string_view>

#include "millrace/telemetry/timeline.hpp"

namespace millrace {

class StepLine {
 public:
  enum Field : std::size_t {
    step,
    epoch,
    samples,
    loss,
    lr,
    grad_norm,
    loss_scale,
    skipped,
    samples_per_second,
    step_ms,
    unread_samples,
    speed_of_light,
    first_phase  // the milliseconds of Phase(p) are field first_phase + p
  };
  static constexpr std::size_t field_count = first_phase + phase_count;

  // False: this is not the line of a step. Fields with other names are ignored.
  bool parse(std::string_view line);
  // NaN for null.
  double value(std::size_t field, double if_missing) const { return present_[field] ? values_[field] : if_missing; }

 private:
  std::array<double, field_count> values_{};
  std::bitset<field_count> present_;
};

}  // namespace millrace
