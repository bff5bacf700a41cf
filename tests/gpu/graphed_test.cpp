// Captured steps on a GPU: the events that connect them with copies outside of the graph. This binary also contains
// replay/graphed_steps_test.cpp, which compares trainings with and without captured steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda/runtime/device.hpp"
#include "replay/graphed_runs.hpp"

namespace millrace {

bool test::configure_fake_gpu(bool, bool) { return false; }

namespace graphed_test {

// The copies of each round are enqueued before its launch, and overwrite slots that the previous round may still have
// to read. They are large, so that a copy that does not wait for its event would be noticed.
TEST(CapturedEvents, MakeAReplayWaitForTheCopiesEnqueuedBeforeIt) {
  cuda::CudaDevice device(0, {});
  constexpr std::size_t slots = 3, count = 1 << 20, bytes = count * sizeof(int);
  constexpr int rounds = 6;
  std::vector<Buffer> from, slot, seen;
  std::vector<std::unique_ptr<Event>> copied, consumed;
  for (std::size_t k = 0; k < slots; ++k) {
    slot.emplace_back(device, MemoryKind::device, bytes);
    seen.emplace_back(device, MemoryKind::pinned, bytes);
    copied.push_back(device.make_event());
    consumed.push_back(device.make_event());
  }
  for (int n = 0; n < rounds * int(slots); ++n) {
    from.emplace_back(device, MemoryKind::pinned, bytes);
    std::fill_n(from.back().as<int>(), count, n + 1);
  }
  const auto done = device.make_event();
  const auto step = device.capture("copies", [&] {
    for (std::size_t k = 0; k < slots; ++k) {
      copied[k]->wait(Stream::compute);
      device.copy_to_host(Stream::compute, seen[k].data(), slot[k].data(), bytes);
      consumed[k]->record(Stream::compute);
    }
    done->record(Stream::compute);
  });
  const auto copy_round = [&](int round) {
    for (std::size_t k = 0; k < slots; ++k) {
      consumed[k]->wait(Stream::copy);
      device.copy_to_device(Stream::copy, slot[k].data(), from[std::size_t(round) * slots + k].data(), bytes);
      copied[k]->record(Stream::copy);
    }
  };
  copy_round(0);
  for (int round = 0; round < rounds; ++round) {
    step->run();
    if (round + 1 < rounds) copy_round(round + 1);
    done->synchronize();
    for (std::size_t k = 0; k < slots; ++k) {
      const int expected = round * int(slots) + int(k) + 1;
      const int* values = seen[k].as<int>();
      EXPECT_EQ(std::count(values, values + count, expected), std::ptrdiff_t(count)) << "round " << round << ", " << k;
    }
  }
}

}  // namespace graphed_test
}  // namespace millrace
