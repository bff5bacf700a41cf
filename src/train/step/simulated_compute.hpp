// SimulatedCompute: replaces computation by sleeping, for tests that depend only on timing (test.compute_delay). The
// sleep is spread over the parameters: in the forward pass it follows the arrival of an operation's weights, in the
// backward pass it precedes the announcement of the operation's gradients.
#pragma once
#include <chrono>
#include <thread>

#include "millrace/model/program.hpp"

namespace millrace {

class SimulatedCompute : public GradReadyHook, public ParamReadyHook {
 public:
  // seconds: total time of a forward pass (one third) and a backward pass (two thirds). elements: size of the gradient.
  SimulatedCompute(double seconds, std::int64_t elements) : seconds_(seconds), elements_(double(elements)) {}

  // Puts this object in front of the two hooks of a pass, each of which may be null.
  void insert(ParamReadyHook*& weights, GradReadyHook*& gradients) {
    weights_ = weights;
    gradients_ = gradients;
    if (weights) weights = this;
    gradients = this;
  }
  // Call it after the forward pass: sleeps for the part that no hook has slept.
  void forward() const { sleep(seconds_ / 3 * (1 - slept_)); }

  void wait_for(std::int64_t begin, std::int64_t end) override {
    weights_->wait_for(begin, end);
    const double part = double(end - begin) / elements_;
    slept_ += part;
    sleep(seconds_ / 3 * part);
  }
  void on_gradient_ready(std::int64_t begin, std::int64_t end) override {
    sleep(seconds_ * 2 / 3 * double(end - begin) / elements_);
    if (gradients_) gradients_->on_gradient_ready(begin, end);
  }

 private:
  static void sleep(double seconds) {
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  double seconds_, elements_;
  double slept_ = 0;  // the part of the forward pass that the hook has slept, from 0 to 1
  ParamReadyHook* weights_ = nullptr;
  GradReadyHook* gradients_ = nullptr;
};

}  // namespace millrace
