// Exact evaluation: every sample of data.valid once, on whatever number of ranks.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "millrace/train/network.hpp"
#include "session.hpp"

namespace millrace {

struct Evaluation {
  double loss = 0, top1 = 0, top5 = 0;
  std::int64_t rows = 0, unread = 0;  // counted; skipped by data.on_error
  bool labels = true;
  std::string str() const;
};

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
  std::map<std::pair<std::int64_t, const DeviceSlots::Slot*>, std::unique_ptr<Recorded>> recorded_;  // by rows, slot
};

}  // namespace millrace
