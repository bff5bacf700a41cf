// PlateauState: the state of optim.schedule = plateau, which lowers the learning rate when evaluations do not improve.
// It works like ReduceLROnPlateau of PyTorch with its default threshold. Checkpoints hold it.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/config/run_config.hpp"

namespace millrace {

struct PlateauState {
  double rate = 1;          // factor on the learning rate
  std::string metric = {};  // that `best` is of, as checkpoint.best; empty: there was no evaluation
  double best = 0;
  std::int64_t waited = 0;  // evaluations without improvement since the best one or the last reduction

  // Takes the result of an evaluation. Returns whether it reduces the rate. Another metric begins anew.
  bool evaluated(const OptimOptions&, const std::string& metric, double value);
};

}  // namespace millrace
