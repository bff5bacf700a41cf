// What a step reads and writes besides tensors: one small struct in device memory. Ops take its address, never a value
// (a recorded step would bake the value in). The host writes the first part before each step; the second part is moved
// on by the optimizer, on the device, and the host reads it late.
#pragma once
#include <cstddef>
#include <cstdint>

namespace millrace {

struct StepState {
  // First part, written by the host before each step.
  float learning_rate = 0;
  float row_weight = 0;     // 1 / rows of the global batch: rows of this micro-batch times it is the DESIGN's "share"
  std::uint64_t epoch = 0;  // counter of the augmentation's stream
  std::uint64_t rng_step = 0;   // attempted step, counter of dropout's stream
  std::uint64_t attempted = 0;  // attempted steps so far: schedule and cursor count these; the optimizer adds one
  std::uint32_t force_inf = 0;  // tests: pretend that this step overflowed
  // Sums over the rows of the step on this rank. Written as zeros by the host, added to by the losses of every
  // micro-batch.
  std::uint64_t top1 = 0, top5 = 0, counted = 0;
  double loss_sum = 0;

  // Second part. Dynamic loss scale: it multiplies the loss gradient; 1 when the precision needs none.
  float loss_scale = 1;
  float scale_growth = 2, scale_backoff = 0.5f, scale_floor = 1.0f / 16384;
  std::uint32_t scale_interval = 2000;  // clean steps until the scale grows
  std::uint32_t clean_steps = 0;
  std::uint32_t scale_on = 0;   // 0: the scale stays 1 and an overflow is a divergence
  std::uint32_t found_inf = 0;  // of the last step, after the sum over ranks
  std::uint64_t applied = 0;    // steps that changed weights: Adam's t
  float grad_norm = 0;          // of the last step: unscaled, global, before clipping

  static std::size_t host_bytes() { return offsetof(StepState, loss_scale); }
};

}  // namespace millrace
