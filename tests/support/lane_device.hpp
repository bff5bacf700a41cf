// A device of plain memory whose lanes are threads: each does its work in order and at its own pace, with random
// pauses, and knows of the others by events alone. What forgets an event reads too early, sooner or later.
#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "support/host_device.hpp"

namespace millrace::test {

class LaneDevice : public HostDevice {
 public:
  // The longest pause of each lane before each piece of work, by Lane, in microseconds.
  explicit LaneDevice(std::array<int, 3> pauses = {100, 100, 100}) : HostDevice(false), pauses_(pauses) {
    for (Queue& lane : lanes_) lane.thread = std::thread([this, &lane] { serve(lane); });
  }
  ~LaneDevice() override {
    for (Queue& lane : lanes_) {
      {
        const std::lock_guard lock(lane.mutex);
        lane.ending = true;
      }
      lane.changed.notify_all();
      lane.thread.join();
    }
  }

  // What a kernel would do.
  void enqueue(Lane lane, std::function<void()> work) {
    Queue& queue = lanes_[int(lane)];
    const std::lock_guard lock(queue.mutex);
    queue.work.push_back(std::move(work));
    queue.changed.notify_all();
  }
  void copy_in(Lane lane, void* to, const void* from, std::size_t bytes) override {
    enqueue(lane, [=] { std::memcpy(to, from, bytes); });
  }
  void copy_out(Lane lane, void* to, const void* from, std::size_t bytes) override {
    enqueue(lane, [=] { std::memcpy(to, from, bytes); });
  }
  void fill_zero(Lane lane, void* to, std::size_t bytes) override {
    enqueue(lane, [=] { std::memset(to, 0, bytes); });
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<LaneEvent>(*this); }
  void synchronize() override {
    for (const Lane lane : {Lane::copy, Lane::compute, Lane::comm}) {
      const auto event = make_event();
      event->record(lane);
      event->synchronize();
    }
  }

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> work;
    bool ending = false;
    std::thread thread;
  };

  // As CUDA's: wait and synchronize mean the last record() before them; without one they do nothing.
  class LaneEvent : public Event {
   public:
    explicit LaneEvent(LaneDevice& device) : device_(device) {}
    void record(Lane lane) override {
      device_.enqueue(lane, [state = state_, n = next()] {
        const std::lock_guard lock(state->mutex);
        state->reached = std::max(state->reached, n);
        state->changed.notify_all();
      });
    }
    void wait(Lane lane) override {
      device_.enqueue(lane, [state = state_, n = recorded()] { state->await(n); });
    }
    void synchronize() override { state_->await(recorded()); }

   private:
    struct State {
      std::mutex mutex;
      std::condition_variable changed;
      std::uint64_t recorded = 0, reached = 0;
      void await(std::uint64_t n) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return reached >= n; });
      }
    };
    std::uint64_t next() const {
      const std::lock_guard lock(state_->mutex);
      return ++state_->recorded;
    }
    std::uint64_t recorded() const {
      const std::lock_guard lock(state_->mutex);
      return state_->recorded;
    }
    LaneDevice& device_;
    std::shared_ptr<State> state_ = std::make_shared<State>();
  };

  void serve(Queue& lane) {
    const auto which = std::size_t(&lane - lanes_);
    std::minstd_rand random(unsigned(which) + 1);
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(lane.mutex);
        lane.changed.wait(lock, [&] { return lane.ending || !lane.work.empty(); });
        if (lane.work.empty()) return;
        work = std::move(lane.work.front());
        lane.work.pop_front();
      }
      if (const int most = pauses_[which])
        std::this_thread::sleep_for(std::chrono::microseconds(random() % unsigned(most)));
      work();
    }
  }

  const std::array<int, 3> pauses_;
  Queue lanes_[3];
};

}  // namespace millrace::test
