// Where things lie in a slot: samples, ids, labels or targets. The same in host memory and on the device.
#pragma once
#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {

struct SlotLayout {
  std::size_t x_bytes, y_bytes, ids_offset, y_offset, bytes;
  SlotLayout(const ShardIndex& i, std::int64_t rows)
      : x_bytes(i.sample_bytes()),
        y_bytes(y_batch_bytes(i)),
        ids_offset(aligned(x_bytes * std::size_t(rows))),
        y_offset(ids_offset + aligned(sizeof(std::int64_t) * std::size_t(rows))),
        bytes(y_offset + aligned(y_bytes * std::size_t(rows))) {}

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
};

}  // namespace millrace
