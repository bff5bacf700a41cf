// An epoch of a raw data set whose second file has read faults: what the loader gives, and what it counts.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/open/wrappers.hpp"
#include "data/raw_set.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/load/sampler.hpp"
#include "support/faulty_files.hpp"
#include "support/host/device.hpp"

namespace millrace::test {

inline constexpr std::int64_t sample_bytes = 5000, rows = 40, global = 16, micro = 4;
inline constexpr std::uint64_t x_offset = 4096 - 4 * 20;  // so that, after 20 labels, the first sample begins a page

inline FaultOptions fault_options(OnError on_error, int retries) {
  FaultOptions o;
  o.on_error = on_error;
  o.retries = retries;
  o.retry_delay = 1e-3;
  return o;
}

// Bytes of samples [first, last) of the second shard.
inline Fault fault_at(std::int64_t first, std::int64_t last, int error, int times = 1 << 30) {
  const std::uint64_t begin = x_offset + 4 * 20;
  return {"raw1", begin + std::uint64_t(first - 20) * sample_bytes, begin + std::uint64_t(last - 20) * sample_bytes,
          error, times};
}

struct EpochSeen {
  std::int64_t rows = 0, zeros = 0, skipped = 0;
  FaultStats faults;
};

// Reads one epoch of one rank. Expects the samples that the sampler yields, except that those in [bad, bad_end) are
// zeros without a label.
inline EpochSeen expect_epoch(const RawSet& set, std::unique_ptr<Source> engine, const FaultOptions& o, int workers,
                              std::int64_t bad, std::int64_t bad_end, int rank = 0, int ranks = 1) {
  HostDevice device;
  const auto source = make_retrying_source(std::move(engine), set.index, o);
  const Sampler sampler(rows, global, micro, 5, true);
  std::vector<MicroBatch> items, share;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    sampler.share(0, step, MicrobatchRange::even(rank, ranks), share);
    items.insert(items.end(), share.begin(), share.end());
  }
  Loader loader(device, *source, set.index, sampler, {workers, 3, micro},
                [&, next = std::size_t(0)]() mutable -> std::optional<MicroBatch> {
                  return next < items.size() ? std::optional(items[next++]) : std::nullopt;
                });
  EpochSeen seen;
  const std::string none(sample_bytes, '\0');
  while (const Batch* b = loader.next()) {
    std::vector<std::int64_t> ids(std::size_t(b->item.rows));
    sampler.ids(b->item, ids.data());
    seen.skipped += b->skipped;
    for (std::size_t r = 0; r < ids.size(); ++r, ++seen.rows) {
      EXPECT_EQ(b->ids.as<std::int64_t>()[r], ids[r]);
      const char* x = b->x.as<char>() + r * sample_bytes;
      const std::int32_t* y = b->y.as<std::int32_t>() + r;
      if (ids[r] < bad || ids[r] >= bad_end) {
        set.expect({&ids[r], 1}, x, y, source->describe());
        continue;
      }
      ++seen.zeros;
      EXPECT_EQ(*y, -1) << ids[r];
      EXPECT_EQ(std::memcmp(x, none.data(), sample_bytes), 0) << ids[r];
    }
  }
  seen.faults = source->faults();
  return seen;
}

}  // namespace millrace::test
