// Byte offsets within a slot: first the samples, then their ids, then the labels or targets. Slots in host memory and
// on the device have the same layout, so one copy moves a whole batch.
#pragma once
#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {

struct SlotLayout {
  std::size_t x_bytes, y_bytes;      // of one row
  std::size_t ids_offset, y_offset;  // samples start at offset 0; each part starts on a page
  std::size_t bytes;                 // of a slot
  SlotLayout(const ShardIndex& i, std::int64_t rows)
      : x_bytes(i.sample_bytes()),
        y_bytes(y_batch_bytes(i)),
        ids_offset(page_aligned(x_bytes * std::size_t(rows))),
        y_offset(ids_offset + page_aligned(sizeof(std::int64_t) * std::size_t(rows))),
        bytes(y_offset + page_aligned(y_bytes * std::size_t(rows))) {}

 private:
  static std::size_t page_aligned(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
};

}  // namespace millrace
