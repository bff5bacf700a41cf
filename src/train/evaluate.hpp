// Exact evaluation: every sample of data.valid once, on whatever number of ranks.
#pragma once
#include "millrace/train/network.hpp"
#include "session.hpp"

namespace millrace {

struct Evaluation {
  double loss = 0, top1 = 0, top5 = 0;
  std::int64_t rows = 0;
  bool labels = true;
  std::string str() const;
};

Evaluation evaluate(Session&, Network&);

}  // namespace millrace
