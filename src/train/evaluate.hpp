// Exact evaluation: every sample of data.valid once, on whatever number of ranks.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

// As often as one wants. Batches lie in the same slots on the device every time, so that what was recorded in one
// evaluation is replayed in the next.
class Evaluator {
 public:
  Evaluator(Session&, Network&);
  Evaluation run();  // collective

 private:
  void forward(const Batch&);
  Session& s_;
  Network& network_;
  LoaderOptions options_;
  DeviceSlots slots_;
  std::map<std::pair<std::int64_t, const DeviceSlots::Slot*>, std::unique_ptr<CapturedStep>>
      captured_;  // by rows, slot
};

}  // namespace millrace
