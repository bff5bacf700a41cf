#include "millrace/device/device.hpp"

namespace millrace {

Buffer::Buffer(Device& device, MemoryKind kind, std::size_t bytes)
    : device_(&device), kind_(kind), data_(bytes ? device.allocate(kind, bytes) : nullptr), bytes_(bytes) {}

void Buffer::reset() {
  if (data_) device_->release(kind_, data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace millrace
