// Tracer: records what all ranks do in some consecutive steps (log.profile_steps), and writes trace.json as soon as
// these steps are over.
#pragma once
#include <filesystem>

#include "millrace/telemetry/trace.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/step.hpp"

namespace millrace {

class Tracer {
 public:
  // Samples log.profile_steps steps of the run, which starts at step `begin`. It skips the first `usual_first` steps
  // when the run is long enough.
  Tracer(Session&, Loader&, std::filesystem::path file, std::int64_t begin);
  void before_enqueue(std::int64_t step);  // steps count from 0
  // Call it for each step whose timestamps have been collected. It is collective for the last sampled step.
  void collected(std::int64_t step, const StepRunner&);
  // A phase of the host between steps, such as a checkpoint.
  void phase(Phase, double began, double ended);
  // Writes what was sampled when the run ends early. Collective.
  void end();

  static constexpr std::int64_t usual_first = 20;  // buffers, caches and the loader's ring are warm by then

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
