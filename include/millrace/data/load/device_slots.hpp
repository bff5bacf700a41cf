// DeviceSlots: a ring of batch buffers in device memory, with two events for each buffer. The events order the copy
// stream and the compute stream; class Event in device.hpp explains why both are needed:
//
//   loader (copy stream)                          step (compute stream)
//   1. waits for `consumed` of the slot            3. waits for `copied`  (Batch::wait_until_copied)
//   2. copies a batch into it, records `copied`    4. reads it, records `consumed` (Batch::record_consumed)
//
// The host enqueues these waits and does not block. It blocks on `copied` in one place: before it reuses the host slot
// that the copy reads (Loader::Impl::release_oldest). With two device slots or more, one batch is copied while the step
// computes on another.
//
// A loader makes its own slots unless its owner gives it some. The owner's slots outlive the loader, so a captured
// step, which contains their addresses, can also run on the batches of the next loader.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/data/index/shards.hpp"
#include "millrace/device/device.hpp"

namespace millrace {

class DeviceSlots {
 public:
  struct Slot {
    char* data = nullptr;             // a batch of up to max_rows rows, laid out as SlotLayout(index, max_rows) says
    std::unique_ptr<Event> copied;    // recorded on the copy stream: the slot holds the whole batch
    std::unique_ptr<Event> consumed;  // recorded on the compute stream: the step no longer reads the slot
  };
  // Allocates `count` slots. Where the device shares the host's memory there are none (count() is 0): the step then
  // reads batches where the workers wrote them.
  DeviceSlots(Device&, const ShardIndex&, std::int64_t max_rows, std::size_t count);
  std::size_t count() const { return slots_.size(); }
  Slot& operator[](std::size_t k) { return slots_[k]; }

 private:
  Buffer memory_;
  std::vector<Slot> slots_;
};

}  // namespace millrace
