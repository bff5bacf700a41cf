// Predicts the time of a training step on a GPU from its passes. A pass takes
//
//   max(bytes / (memory bandwidth x efficiency), FLOPs / (product rate x efficiency)) + launches x gap
//
// and the passes of a rank run one after the other. Collectives run beside them; what does not fit is exposed. This is
// a model: no GPU has confirmed it.
#pragma once
#include <array>
#include <vector>

#include "millrace/roofline/gpu.hpp"
#include "millrace/roofline/passes.hpp"

namespace millrace::roofline {

// What the ranks exchange in a step. Bytes are what one rank sends over its link.
struct Communication {
  double reduce_bytes = 0, last_reduce_bytes = 0;   // gradient and statistics; the last bucket
  double gather_bytes = 0, first_gather_bytes = 0;  // weights with optim.zero; the first bucket
  double update_bytes = 0;  // sums of squares within the optimizer's step, which nothing overlaps
  int collectives = 0;
  bool overlap = true;        // the gradient is reduced beside the backward pass
  std::vector<Pass> compute;  // conversions of 16-bit gradients and gathered weights
};

// The micro-batches of a rank that have equal numbers of rows.
struct MicroBatches {
  Graph graph;  // not rewritten
  int count = 1;
};

// A step of one rank. The micro-batches are in the order in which they run.
struct TrainingStep {
  std::vector<MicroBatches> micro_batches;
  OptimizerSpec optimizer;  // complete
  Communication communication;
  int breadcrumb_interval = 1;  // labelled operations for each breadcrumb; 0: none
  std::int64_t global_batch = 0;
  bool tf32 = false;
  batch_norm::OnChipMemory on_chip;  // of the GPU, with cuda.persistent_norm

  int micro_batch_count() const;
};

std::vector<Pass> passes_of(const TrainingStep&, int fusion_level);

// The passes of one kind, or of all kinds.
struct PassTotal {
  int launches = 0;
  double bytes = 0, flops = 0;
  double seconds = 0;
  double memory_seconds = 0, compute_seconds = 0, gap_seconds = 0;  // parts of `seconds`, by what bounds each pass
  double ideal_seconds = 0;                                         // by the data sheet's rates, without gaps
};

struct StepTime {
  std::array<PassTotal, pass_kinds> kinds;
  PassTotal passes;                              // all of them
  std::array<double, 3> phase_seconds{};         // by Phase
  double link_seconds = 0, exposed_seconds = 0;  // of collectives; exposed: not beside forward or backward passes
  double seconds() const { return passes.seconds + exposed_seconds; }
  const PassTotal& of(PassKind kind) const { return kinds[std::size_t(kind)]; }
};
StepTime predict(const std::vector<Pass>&, const TrainingStep&, const GpuModel&);

// What the report needs beside the step: names and what is assumed.
struct StepDescription {
  std::string network, precision;
  int ranks = 1, level = 1;        // fusion level of the configuration
  std::vector<std::string> notes;  // more assumptions, one line each
};
// The table of the passes at the configured fusion level, then the bytes and times of all levels.
std::string report(const TrainingStep&, const StepDescription&, const GpuModel&);
std::string report_json(const TrainingStep&, const StepDescription&, const GpuModel&);

}  // namespace millrace::roofline
