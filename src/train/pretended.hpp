// Computing that takes time and no core, for tests of what depends on time alone: train.test_compute.
#pragma once
#include <chrono>
#include <thread>

#include "millrace/model/program.hpp"

namespace millrace {

class Pretended : public GradSink {
 public:
  // elements: of the gradient. to: where what the backward pass announces goes; null: nowhere.
  Pretended(double seconds, std::int64_t elements, GradSink* to)
      : seconds_(seconds), elements_(double(elements)), to_(to) {}
  void forward() const { sleep(seconds_ / 3); }
  // As much of the backward pass as made these.
  void ready(std::int64_t begin, std::int64_t end) override {
    sleep(seconds_ * 2 / 3 * double(end - begin) / elements_);
    if (to_) to_->ready(begin, end);
  }

 private:
  static void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  double seconds_, elements_;
  GradSink* to_;
};

}  // namespace millrace
