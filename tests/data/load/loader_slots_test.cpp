// The events that hand over device slots between loader and step. The test device runs its work as late as possible, or
// copies as early as possible, so a missing event shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "millrace/base/error.hpp"
#include "millrace/data/load/loader.hpp"
#include "support/deferred_device.hpp"

namespace millrace {
namespace loader_slots_test {

using test::DeferredDevice;

constexpr std::int64_t rows = 4;

struct Ids : Source {
  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      static_cast<std::uint8_t*>(x)[i] = std::uint8_t(ids[i]);
      static_cast<std::int32_t*>(y)[i] = std::int32_t(ids[i]);
    }
  }
  std::string describe() const override { return "ids"; }
};

enum class Events { all, without_wait_until_copied, without_record_consumed };
struct Case {
  int max_batches_per_take = 1, prefetch = 3, device_slots = 2;
  bool captured = true, eager_copies = false;
  Events events = Events::all;
};

// The ids that steps of max_batches_per_take micro-batches find on the device. Two steps are in flight at a time, as in
// training.
std::vector<std::int64_t> ids_seen(const Case& c) {
  const int max_batches_per_take = c.max_batches_per_take;
  const std::int64_t steps = 12;
  ShardIndex index;
  index.rows = rows * max_batches_per_take * steps;
  index.sample = {1, 1, 1};
  index.x.dtype = DType::u8;
  const Sampler sampler(index.rows, rows * max_batches_per_take, rows, 5, false);
  DeferredDevice device(c.eager_copies);
  Ids source;
  std::int64_t next = 0;
  const auto items = [&]() -> std::optional<MicroBatch> {
    if (next == steps * max_batches_per_take) return std::nullopt;
    const std::int64_t n = next++;
    return MicroBatch{0, n / max_batches_per_take, n * rows, rows};
  };
  Loader loader(device, source, index, sampler, {1, c.prefetch, rows, c.device_slots, max_batches_per_take}, items);

  const std::size_t each = std::size_t(rows * max_batches_per_take);
  std::vector<std::int64_t> seen[2] = {std::vector<std::int64_t>(each), std::vector<std::int64_t>(each)}, all;
  std::unique_ptr<Event> done[2] = {device.make_event(), device.make_event()};
  std::map<std::pair<std::size_t, const DeviceSlots::Slot*>, std::unique_ptr<CapturedStep>> captured_steps;
  const auto collect = [&](std::size_t k) {
    done[k]->synchronize();
    all.insert(all.end(), seen[k].begin(), seen[k].end());
  };
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::size_t k = std::size_t(step % 2);
    const auto batches = loader.take(std::size_t(max_batches_per_take));
    const auto work = [&, k, batches = std::vector<Batch>(batches.begin(), batches.end())] {
      for (std::size_t m = 0; m < batches.size(); ++m) {
        if (c.events != Events::without_wait_until_copied) batches[m].wait_until_copied();
        device.copy_to_host(Stream::compute, seen[k].data() + m * rows, batches[m].ids.data,
                            rows * sizeof(std::int64_t));
        if (c.events != Events::without_record_consumed) batches[m].record_consumed();
      }
      done[k]->record(Stream::compute);
    };
    auto& captured_step = captured_steps[{k, batches[0].slot}];
    if (!c.captured)
      work();
    else if (!captured_step)
      captured_step = device.capture("step", work);
    if (captured_step) captured_step->run();
    if (step > 0) collect(1 - k);
  }
  collect((steps - 1) % 2);
  return all;
}

std::vector<std::int64_t> in_order(int max_batches_per_take) {
  std::vector<std::int64_t> ids(std::size_t(rows * max_batches_per_take * 12));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(LoaderSlots, EveryBatchIsReadAsItWasWritten) {
  for (const bool captured : {false, true})
    for (const bool eager_copies : {false, true})
      for (const int max_batches_per_take : {1, 2, 3, 5})
        for (const int prefetch : {0, 2, 3, 6})
          for (const int slots :
               {std::max(2, max_batches_per_take), max_batches_per_take + 1, max_batches_per_take + 3})
            EXPECT_EQ(ids_seen({max_batches_per_take, prefetch, slots, captured, eager_copies}),
                      in_order(max_batches_per_take))
                << max_batches_per_take << " batches per take, prefetch " << prefetch << ", " << slots
                << " slots, captured " << captured << ", eager copies " << eager_copies;
}

// Shows that the test above can fail. If a step is one batch, two slots need no `consumed` event: the host has waited
// for the step before the last.
TEST(LoaderSlots, AMissingEventIsDetected) {
  for (const bool captured : {false, true})
    for (const int max_batches_per_take : {1, 2, 3, 5}) {
      const int slots = std::max(2, max_batches_per_take);
      EXPECT_NE(ids_seen({max_batches_per_take, 3, slots, captured, false, Events::without_wait_until_copied}),
                in_order(max_batches_per_take))
          << max_batches_per_take;
      if (max_batches_per_take == 1) continue;
      EXPECT_NE(ids_seen({max_batches_per_take, 3, slots, captured, true, Events::without_record_consumed}),
                in_order(max_batches_per_take))
          << max_batches_per_take;
    }
}

// A captured step could not hand a slot over within itself: waits in it refer to events recorded before its launch.
TEST(LoaderSlots, TooFewSlotsForAStepAreRefused) { EXPECT_THROW(ids_seen({3, 3, 2}), Error); }

TEST(LoaderSlots, SlotsOfTheCallerServeOneLoaderAfterTheOther) {
  ShardIndex index;
  index.rows = 20;
  index.sample = {1, 1, 1};
  const Sampler sampler(20, rows, rows, 5, false);
  DeferredDevice device;
  Ids source;
  DeviceSlots slots(device, index, rows, 2);
  for (int round = 0; round < 3; ++round) {
    std::int64_t step = 0;
    Loader loader(
        device, source, index, sampler, {1, 2, rows},
        [&]() -> std::optional<MicroBatch> {
          if (step == 5) return std::nullopt;
          const std::int64_t n = step++;
          return MicroBatch{0, n, n * rows, rows};
        },
        &slots);
    std::vector<std::int64_t> seen(20);
    std::int64_t* out = seen.data();
    for (std::size_t n = 0; const Batch* batch = loader.next(); ++n, out += rows) {
      EXPECT_EQ(batch->slot, &slots[n % 2]);
      device.copy_to_host(Stream::compute, out, batch->ids.data, rows * sizeof(std::int64_t));
    }
    device.synchronize();
    for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(seen[std::size_t(i)], i) << "round " << round;
  }
}

}  // namespace loader_slots_test
}  // namespace millrace
