// A device of plain host memory whose streams are threads. Each thread does the work of its stream in order, with
// random pauses. Only events synchronise the streams. So code that forgets an event reads data too early, sooner or
// later.
#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "support/host/device.hpp"

namespace millrace::test {

class DelayedStreamDevice : public HostDevice {
 public:
  // pauses: the longest pause before each piece of work, in microseconds, for each Stream.
  explicit DelayedStreamDevice(std::array<int, 3> pauses = {100, 100, 100}) : HostDevice(false), pauses_(pauses) {
    for (Queue& stream : streams_) stream.thread = std::thread([this, &stream] { serve(stream); });
  }
  ~DelayedStreamDevice() override {
    for (Queue& stream : streams_) {
      {
        const std::lock_guard lock(stream.mutex);
        stream.ending = true;
      }
      stream.changed.notify_all();
      stream.thread.join();
    }
  }

  // Enqueues work, as the launch of a kernel does.
  void enqueue(Stream stream, std::function<void()> work) {
    Queue& queue = streams_[int(stream)];
    const std::lock_guard lock(queue.mutex);
    queue.work.push_back(std::move(work));
    queue.changed.notify_all();
  }
  void copy_to_device(Stream stream, void* to, const void* from, std::size_t bytes) override {
    enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  }
  void copy_to_host(Stream stream, void* to, const void* from, std::size_t bytes) override {
    enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  }
  void fill_zero(Stream stream, void* to, std::size_t bytes) override {
    enqueue(stream, [=] { std::memset(to, 0, bytes); });
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<StreamEvent>(*this); }
  void synchronize() override {
    for (const Stream stream : {Stream::copy, Stream::compute, Stream::comm}) {
      const auto event = make_event();
      event->record(stream);
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

  // As on CUDA: wait() and synchronize() refer to the last record() before them. Without one, they do nothing.
  class StreamEvent : public Event {
   public:
    explicit StreamEvent(DelayedStreamDevice& device) : device_(device) {}
    void record(Stream stream) override {
      device_.enqueue(stream, [state = state_, n = next()] {
        const std::lock_guard lock(state->mutex);
        state->reached = std::max(state->reached, n);
        state->changed.notify_all();
      });
    }
    void wait(Stream stream) override {
      device_.enqueue(stream, [state = state_, n = recorded()] { state->await(n); });
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
    DelayedStreamDevice& device_;
    std::shared_ptr<State> state_ = std::make_shared<State>();
  };

  void serve(Queue& stream) {
    const auto which = std::size_t(&stream - streams_);
    std::minstd_rand random(unsigned(which) + 1);
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(stream.mutex);
        stream.changed.wait(lock, [&] { return stream.ending || !stream.work.empty(); });
        if (stream.work.empty()) return;
        work = std::move(stream.work.front());
        stream.work.pop_front();
      }
      if (const int longest = pauses_[which])
        std::this_thread::sleep_for(std::chrono::microseconds(random() % unsigned(longest)));
      work();
    }
  }

  const std::array<int, 3> pauses_;
  Queue streams_[3];
};

}  // namespace millrace::test
