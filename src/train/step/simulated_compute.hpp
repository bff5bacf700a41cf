// Computing that takes time and no core, for tests of what depends on time alone: test.compute_delay. It goes where the
// parameters are: an operation takes its part of a pass when its weights are there, or before its gradients are.
#pragma once
#include <chrono>
#include <thread>

#include "millrace/model/program.hpp"

namespace millrace {

class SimulatedCompute : public GradReadyHook, public ParamReadyHook {
 public:
  // elements: of the gradient. to: where what the backward pass announces goes; gate: who brings weights. Null: nobody.
  SimulatedCompute(double seconds, std::int64_t elements, GradReadyHook* to, ParamReadyHook* gate)
      : seconds_(seconds), elements_(double(elements)), to_(to), gate_(gate) {}
  // The forward pass, as far as no weights were waited for.
  void forward() const { sleep(seconds_ / 3 * (1 - gated_)); }
  void wait_for(std::int64_t begin, std::int64_t end) override {
    if (!gate_) return;
    gate_->wait_for(begin, end);
    const double part = double(end - begin) / elements_;
    gated_ += part, sleep(seconds_ / 3 * part);
  }
  void ready(std::int64_t begin, std::int64_t end) override {
    sleep(seconds_ * 2 / 3 * double(end - begin) / elements_);
    if (to_) to_->ready(begin, end);
  }

 private:
  static void sleep(double seconds) {
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  double seconds_, elements_, gated_ = 0;
  GradReadyHook* to_;
  ParamReadyHook* gate_;
};

}  // namespace millrace
