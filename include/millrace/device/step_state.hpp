// StepState: the scalars that a step reads and writes, as one small struct in device memory. Operations take its
// address and never a value from it, because a captured step would repeat the value of the capture in every run. The
// host copies the first part to the device before each step. The optimizer updates the second part on the device, and
// the host reads it after the step, without making the device wait.
#pragma once
#include <cstddef>
#include <cstdint>

namespace millrace {

// Sums of one loss over the rows of this rank in the step. The host writes zeros, and every micro-batch adds to them.
struct LossSums {
  std::uint64_t top1 = 0, top5 = 0, counted = 0;
  double sum = 0, weight = 0;  // the mean loss is sum / weight
};

struct StepState {
  static constexpr int max_losses = 8;

  // First part, written by the host before each step.
  float learning_rate = 0;
  float row_weight = 0;         // 1 / rows of the global batch: the weight of each row in the mean loss
  std::uint64_t epoch = 0;      // counter of the random numbers of augmentation
  std::uint64_t rng_step = 0;   // number of this step attempt: counter of the random numbers of dropout
  std::uint64_t attempted = 0;  // step attempts so far, which the schedule and the data position follow; the optimizer
                                // adds one
  std::uint64_t position = 0;   // where the positions of a program with a cache begin (AttentionSpec::window)
  std::uint32_t force_inf = 0;  // for tests: handle this step as if its gradients had overflowed
  LossSums losses[max_losses];  // by LossTerm::number (ops/loss.hpp)

  // Second part, updated by the optimizer. The dynamic loss scale multiplies the gradient of the loss; it is 1 if the
  // precision needs none.
  float loss_scale = 1;
  float scale_growth = 2, scale_backoff = 0.5f, scale_floor = 1.0f / 16384;
  std::uint32_t scale_interval = 2000;  // steps without overflow until the scale grows
  std::uint32_t clean_steps = 0;        // steps without overflow since the scale last changed
  std::uint32_t scale_on = 0;           // 0: the scale stays 1, and an overflow means that training diverged
  std::uint32_t found_inf = 0;          // 1: the last step overflowed on some rank
  std::uint64_t applied = 0;            // steps that updated the weights: t in Adam's bias correction
  float grad_norm = 0;  // of the last step, over all ranks and parameters, without the loss scale, before clipping

  // Size of the first part.
  static std::size_t host_bytes() { return offsetof(StepState, loss_scale); }
};

}  // namespace millrace
