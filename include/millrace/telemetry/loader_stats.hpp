// What one rank's loader did over a run, and how fast it could be.
#pragma once
#include <array>
#include <cstdint>

namespace millrace {

// Decoding by the readers that do not use the HDF5 library, summed over all threads.
struct DecodeStats {
  std::uint64_t chunks = 0;
  double seconds = 0;  // of chunks and of images
};

struct LoaderStats {
  std::uint64_t batches = 0, samples = 0, bytes_read = 0;

  // Queue depth: the number of filled slots when the step takes a batch.
  std::uint64_t queue_depth_sum = 0;
  std::array<std::uint64_t, 17> queue_depths{};  // how often each depth occurred; the last: that depth or more

  double wait_seconds = 0;         // the step waited for a batch
  double read_seconds = 0;         // the workers read and decoded, summed over all workers
  DecodeStats decoded{};           // its seconds are part of read_seconds
  double room_seconds = 0;         // the workers waited for a free slot, summed over all workers

  // Copies to the device that were timed by the device's clock. Only some copies are.
  double copy_seconds = 0;
  std::uint64_t copied_bytes = 0, copied_samples = 0;

  double first_batch_seconds = 0;  // from the start of the loader to its first batch
  int workers = 0;                // 0: the step reads by itself
  std::uint64_t clock_reads = 0;  // made for these statistics

  // Samples/s that the workers could deliver if they never waited for a free slot.
  double capacity() const;
  // Bytes/s and samples/s while copying; 0: no copy was timed.
  double copy_bytes_rate() const { return copy_seconds > 0 ? double(copied_bytes) / copy_seconds : 0; }
  double copy_rate() const { return copy_seconds > 0 ? double(copied_samples) / copy_seconds : 0; }
  double decoding() const { return read_seconds > 0 ? decoded.seconds / read_seconds : 0; }  // share of read_seconds
  double sample_bytes() const { return samples > 0 ? double(bytes_read) / double(samples) : 0; }
  double mean_depth() const { return batches ? double(queue_depth_sum) / double(batches) : 0.0; }
};

}  // namespace millrace
