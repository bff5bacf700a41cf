// A Device of plain host memory, for tests of the code above devices. With shares_host = false its device memory is
// separate from host memory, so that code that forgets a copy sees zeros.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "millrace/device/device.hpp"

namespace millrace::test {

class HostDevice : public Device {
 public:
  explicit HostDevice(bool shares_host = true) : shares_host_(shares_host) {}
  std::string name() const override { return "cpu"; }
  std::string describe() const override { return "plain memory, for tests"; }
  std::size_t memory_bytes() const override { return std::size_t(1) << 30; }
  void* allocate(MemoryKind, std::size_t bytes) override {
    void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    ++allocations;
    return memory;
  }
  void release(MemoryKind, void* memory, std::size_t) noexcept override { std::free(memory); }
  void copy_to_device(Stream, void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    ++copies;
  }
  void copy_to_host(Stream, void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill_zero(Stream, void* to, std::size_t bytes) override { std::memset(to, 0, bytes); }
  bool shares_host_memory() const override { return shares_host_; }
  std::unique_ptr<Event> make_event() override {
    struct Immediate : Event {
      void record(Stream) override {}
      void wait(Stream) override {}
      void synchronize() override {}
    };
    return std::make_unique<Immediate>();
  }
  std::unique_ptr<Timestamps> make_timestamps(int count) override {
    struct Clock : Timestamps {
      std::vector<std::chrono::steady_clock::time_point> at;
      void record(Stream, int index) override { at.at(std::size_t(index)) = std::chrono::steady_clock::now(); }
      void read(std::span<double> out) override {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::chrono::duration<double>(at.at(i) - at[0]).count();
      }
    };
    auto timestamps = std::make_unique<Clock>();
    timestamps->at.resize(std::size_t(count));
    return timestamps;
  }
  std::unique_ptr<CapturedStep> capture(const std::string&, std::function<void()> step) override {
    struct EagerStep : CapturedStep {
      std::function<void()> step;
      void run() override { step(); }
    };
    auto eager = std::make_unique<EagerStep>();
    eager->step = std::move(step);
    return eager;
  }
  void synchronize() override {}

  std::atomic<int> allocations{0}, copies{0};

 private:
  bool shares_host_;
};

}  // namespace millrace::test
