#include "train/step/step_timing_mean.hpp"

#include <algorithm>

namespace millrace {

void StepTimingMean::add(const StepMetrics& m, const StepTiming& pace) {
  if (++seen_ <= first_steps || !pace.full || pace.micro_batches == 0) return;
  const auto of = [&m](Phase p) { return m.phase_seconds[std::size_t(p)]; };
  const double sync_wait = std::min(pace.sync_wait, of(Phase::other));  // on a GPU the next step runs meanwhile
  ++sum_.steps;
  sum_.step += m.seconds;
  sum_.input += of(Phase::data_wait) + of(Phase::copy);
  sum_.forward += of(Phase::forward);
  sum_.backward += of(Phase::backward);
  sum_.optimizer += of(Phase::optimizer);
  sum_.last_backward += pace.last_backward;
  sum_.input_pass += pace.input_pass;
  sum_.sums += of(Phase::communication);
  sum_.meeting += sync_wait;
  sum_.other += of(Phase::other) - sync_wait;
  sum_.micro_batches = pace.micro_batches;
  sum_.ready.resize(pace.ready.size());
  for (std::size_t i = 0; i < pace.ready.size(); ++i) sum_.ready[i].seconds += pace.ready[i];
  own_.add(m.seconds - of(Phase::communication) - sync_wait);
}

StepTimingStats StepTimingMean::stats() const {
  StepTimingStats out = sum_;
  if (out.steps == 0) return out;
  for (double* sum : {&out.step, &out.input, &out.forward, &out.backward, &out.optimizer, &out.last_backward,
                      &out.input_pass, &out.sums, &out.meeting, &out.other})
    *sum /= double(out.steps);
  for (ReadyBytes& r : out.ready) r.seconds /= double(out.steps);
  out.own = own_.bins();
  return out;
}

}  // namespace millrace
