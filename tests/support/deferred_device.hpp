// A device of plain host memory that defers all work. A stream does nothing until the host waits for something in it.
// Then it does only the work that this needs, including the work of other streams that it waits for itself. This is the
// latest moment that an asynchronous device may choose, and it is the same in every run. So code that forgets to wait
// reads old contents.
//
// With eager_copies, the copy stream does its work at once, which is the earliest possible moment. So code that forgets
// to make it wait overwrites data that has not been read yet.
//
// capture() behaves as on CUDA: the first run calls the function, the second captures its work and enqueues it, and
// later runs enqueue the captured work.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"
#include "support/host/device.hpp"

namespace millrace::test {

class DeferredDevice : public HostDevice {
 public:
  using Work = std::function<void()>;
  explicit DeferredDevice(bool eager_copies = false) : HostDevice(false), eager_copies_(eager_copies) {}

  void enqueue(Stream stream, Work work) {
    if (running_) return work();  // called by work that runs now
    if (captured_nodes_) return captured_nodes_->push_back({std::move(work), nullptr, false});
    Queue& queue = streams_[std::size_t(stream)];
    queue.work.push_back(std::move(work));
    ++queue.enqueued;
    if (stream == Stream::copy && eager_copies_) reach(end_of(stream));
  }
  bool capturing() const { return captured_nodes_ != nullptr; }

  void copy_to_device(Stream stream, void* to, const void* from, std::size_t bytes) override {
    enqueue(stream, [=, this] { HostDevice::copy_to_device(stream, to, from, bytes); });
  }
  void copy_to_host(Stream stream, void* to, const void* from, std::size_t bytes) override {
    enqueue(stream, [=, this] { HostDevice::copy_to_host(stream, to, from, bytes); });
  }
  void fill_zero(Stream stream, void* to, std::size_t bytes) override {
    enqueue(stream, [=, this] { HostDevice::fill_zero(stream, to, bytes); });
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DeferredEvent>(*this); }
  std::unique_ptr<Timestamps> make_timestamps(int count) override { return std::make_unique<Clocks>(*this, count); }
  std::unique_ptr<CapturedStep> capture(const std::string& key, Work step) override {
    return std::make_unique<Graph>(*this, key, std::move(step));
  }
  void synchronize() override {
    for (const Stream stream : {Stream::copy, Stream::compute, Stream::comm}) reach(end_of(stream));
  }

 protected:
  // Called with the key of a step after its capture, and before and after each launch of its graph. launching() and
  // launched() may enqueue work before and after the work of the graph.
  virtual void captured(const std::string&) {}
  virtual void launching(const std::string&) {}
  virtual void launched() {}

 private:
  struct Queue {
    std::deque<Work> work;
    std::uint64_t enqueued = 0, begun = 0, done = 0;
  };
  struct Point {  // a point in a stream, after the first `number` pieces of work
    Stream stream = Stream::compute;
    std::uint64_t number = 0;
  };
  Point end_of(Stream stream) const { return {stream, streams_[std::size_t(stream)].enqueued}; }

  void reach(const Point& point) {
    Queue& queue = streams_[std::size_t(point.stream)];
    while (queue.done < point.number && !lost_) {
      MR_CHECK(queue.begun == queue.done, "streams wait for each other");
      const Work work = std::move(queue.work.front());
      queue.work.pop_front();
      ++queue.begun;
      const bool inside = std::exchange(running_, true);
      try {
        work();
      } catch (...) {
        lost_ = true;  // like a GPU after a fault: no later work runs
        running_ = inside;
        throw;
      }
      running_ = inside;
      ++queue.done;
    }
  }

  class DeferredEvent : public Event {
   public:
    explicit DeferredEvent(DeferredDevice& device) : device_(device) {}
    void record(Stream stream) override {
      if (device_.captured_nodes_) return device_.captured_nodes_->push_back({nullptr, this, true});
      point = device_.end_of(stream);
    }
    void wait(Stream stream) override {
      if (device_.captured_nodes_) return device_.captured_nodes_->push_back({nullptr, this, false});
      device_.enqueue(stream, [&device = device_, before = point] { device.reach(before); });
    }
    void synchronize() override { device_.reach(point); }
    Point point;  // of the last record()

   private:
    DeferredDevice& device_;
  };

  struct Node {  // work, or a record of an event, or a wait for it
    Work work;
    DeferredEvent* event;
    bool records;
  };

  class Clocks : public Timestamps {
   public:
    Clocks(DeferredDevice& device, int count) : device_(device), at_(std::size_t(count)) {
      for (int i = 0; i < count; ++i) reached_.emplace_back(device);
    }
    void record(Stream stream, int index) override {
      device_.enqueue(stream, [this, index] {
        at_.at(std::size_t(index)) =
            std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
      });
      reached_.at(std::size_t(index)).record(stream);
    }
    void read(std::span<double> out) override {
      for (std::size_t i = 0; i < out.size(); ++i) {
        reached_[i].synchronize();
        out[i] = at_[i] - at_[0];
      }
    }

   private:
    DeferredDevice& device_;
    std::vector<double> at_;
    std::deque<DeferredEvent> reached_;
  };

  class Graph : public CapturedStep {
   public:
    Graph(DeferredDevice& device, std::string key, Work step)
        : device_(device), key_(std::move(key)), step_(std::move(step)) {}
    void run() override {
      if (!warm_) return warm_ = true, step_();
      if (nodes_.empty()) {
        device_.captured_nodes_ = &nodes_;
        step_();
        device_.captured_nodes_ = nullptr;
        device_.captured(key_);
      }
      device_.launching(key_);
      std::vector<Work> work;  // each wait is for the last record() before the launch
      for (const Node& node : nodes_) {
        if (node.event && !node.records)
          work.push_back([&device = device_, before = node.event->point] { device.reach(before); });
        else
          work.push_back(node.work);
      }
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].records)
          nodes_[i].event->point = device_.end_of(Stream::compute);
        else
          device_.enqueue(Stream::compute, std::move(work[i]));
      }
      device_.launched();
    }

   private:
    DeferredDevice& device_;
    std::string key_;
    Work step_;
    std::vector<Node> nodes_;
    bool warm_ = false;
  };

  const bool eager_copies_;
  Queue streams_[3];
  std::vector<Node>* captured_nodes_ = nullptr;  // where a capture adds nodes; null if none is in progress
  bool running_ = false, lost_ = false;
};

}  // namespace millrace::test
