// Tracer: what all ranks did in some consecutive steps (log.profile_steps), written to trace.json as soon as they are
// over.
#pragma once
#include <filesystem>

#include "millrace/telemetry/trace.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/step.hpp"

namespace millrace {

class Tracer {
 public:
  // log.profile_steps steps of those from `begin` on: after the first ones, where there are so many.
  Tracer(Session&, Loader&, std::filesystem::path file, std::int64_t begin);
  void before_enqueue(std::int64_t step);  // from 0
  // Collective when the last traced step has been collected.
  void collected(std::int64_t step, const StepRunner&);
  void phase(Phase, double began, double ended);  // of the host, beside the steps
  void end();                                     // of the run: what there is so far. Collective

  static constexpr std::int64_t usual_first = 20;  // once buffers, caches and the ring have settled

 private:
  bool active(std::int64_t step) const { return step >= first_ && step < end_; }
  void write();
  Session& s_;
  Loader& loader_;
  std::filesystem::path file_;
  std::int64_t first_ = 0, end_ = 0;
  bool began_ = false, done_ = false;
  RankTrace mine_;
};

}  // namespace millrace
