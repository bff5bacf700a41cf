// What the marks of a step say, as spans of a trace.
#include <algorithm>

#include "millrace/train/step/step.hpp"

namespace millrace {

void StepRunner::phase_spans(std::vector<Span>& out) const {
  const EnqueuedStep& issued = enqueued_[std::size_t((last_step_ - 1) % 2)];
  const std::size_t shift = std::size_t(timestamp_offset());
  const std::size_t marks = times_.empty() ? 0 : std::size_t(timestamp_count(issued.micro_batches));
  const auto at = [&](std::size_t mark) { return origin_ + (mark == 0 ? 0.0 : times_[mark + shift]); };
  const auto add = [&](const char* name, double began, double ended) {
    out.push_back({"step", name, began, std::max(began, ended)});
  };
  out.push_back({"step", "step " + std::to_string(last_step_), at(0), at(marks - 1), {{"step", double(last_step_)}}});
  for (std::size_t k = 0; k < std::size_t(issued.micro_batches); ++k) {
    const std::size_t first = timestamps_per_micro_batch * k;
    add(name_of(Phase::data_wait), at(first), at(first + 1));
    if (!s_.compute.device->shares_host_memory()) add(name_of(Phase::copy), at(first + 1), at(first + 2));
    add(name_of(Phase::forward), at(first + 2), at(first + 3));
    add(name_of(Phase::backward), at(first + 3), at(first + 4));
  }
  add(name_of(Phase::communication), at(marks - 3), at(marks - 2));
  add(name_of(Phase::optimizer), at(marks - 2), at(marks - 1));
  for (std::size_t wait = 0; wait < std::size_t(all_waits()); ++wait)  // inside of a phase that computes
    if (int(wait) >= all_gather_waits() || issued.micro_batches > 0)
      add(name_of(Phase::communication), origin_ + times_[1 + 2 * wait], origin_ + times_[2 + 2 * wait]);
}

}  // namespace millrace
