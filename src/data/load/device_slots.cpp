#include "millrace/data/load/device_slots.hpp"

#include "millrace/data/load/slot_layout.hpp"

namespace millrace {

DeviceSlots::DeviceSlots(Device& device, const ShardIndex& index, std::int64_t max_rows, std::size_t count) {
  if (device.shares_host_memory()) return;
  const std::size_t bytes = SlotLayout(index, max_rows).bytes;
  memory_ = Buffer(device, MemoryKind::device, bytes * count);
  for (std::size_t k = 0; k < count; ++k)
    slots_.push_back({memory_.as<char>() + k * bytes, device.make_event(), device.make_event()});
}

}  // namespace millrace
