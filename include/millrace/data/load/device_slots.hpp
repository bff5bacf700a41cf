// DeviceSlots: places for batches on the device, in a ring, with the events that hand them over. A loader makes its own
// unless it is given those of its owner: then what was recorded with their addresses may be run on the batches of the
// next loader too.
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
    char* data = nullptr;             // a batch of max_rows rows, laid out as in the loader's memory
    std::unique_ptr<Event> copied;    // the copy lane has filled it
    std::unique_ptr<Event> consumed;  // the compute lane has read it
  };
  // Takes memory, but where the device shares the host's: batches are read where the workers put them, and there are
  // no slots.
  DeviceSlots(Device&, const ShardIndex&, std::int64_t max_rows, std::size_t count);
  std::size_t count() const { return slots_.size(); }
  Slot& operator[](std::size_t k) { return slots_[k]; }

 private:
  Buffer memory_;
  std::vector<Slot> slots_;
};

}  // namespace millrace
