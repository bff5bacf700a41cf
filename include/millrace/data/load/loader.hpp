// Loader: feeds the training step. Worker threads read samples into a ring of host slots ahead of the step. The copy
// stream brings filled slots to the device while the step computes on earlier ones. Batches arrive in the order of the
// micro-batches, whatever the number and speed of the workers.
//
// Where a batch waits:
//   - Host: next() and take() wait until the workers have filled the batch's host slot. LoaderStats::wait_seconds
//     counts this wait.
//   - Host: a host slot is refilled only after its copy to the device has ended.
//   - Device: the compute stream waits for the `copied` event of the device slot before the step reads the batch. The
//     copy stream waits for its `consumed` event before it overwrites the slot. See device_slots.hpp.
//
// Example:
//   Loader loader(device, source, index, sampler, options, items);
//   while (const Batch* batch = loader.next()) program.forward(batch->x, batch->y, batch->ids, true);
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "millrace/data/load/device_slots.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/device/device.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

// One micro-batch, in device memory or, where the device shares it, in host memory.
struct Batch {
  MicroBatch item;
  Tensor x;                           // (rows, sample...) in the stored data type and layout, not yet normalized
  Tensor y;                           // labels: int32 (rows); targets: float32 (rows, target...)
  Tensor ids;                         // sample ids: int64 (rows)
  std::int64_t skipped = 0;           // samples that could not be read: their values are zeros and their label is -1
  DeviceSlots::Slot* slot = nullptr;  // where the batch lies on the device; null: the device reads host memory

  // For batches of take(); next() makes both calls itself. Call wait_until_copied() before the first kernel that reads
  // the batch: the compute stream then waits until the batch has been copied. Call record_consumed() after the last
  // such kernel: the loader may then overwrite the device slot. A captured step may contain both calls, because take()
  // enqueues the copies before the step is launched. The host does not block.
  void wait_until_copied() const {
    if (slot) slot->copied->wait(Stream::compute);
  }
  void record_consumed() const {
    if (slot) slot->consumed->record(Stream::compute);
  }
};

struct LoaderOptions {
  int workers = 1;  // threads; 0: next() and take() read in the calling thread
  // Slots in the host ring, at least 2. 0: the ring starts with 4 slots and doubles when the step waits for a batch
  // that a deeper ring would have held. It grows to 64 MiB (never below 4 slots) or to 256 slots.
  int prefetch = 3;
  std::int64_t max_rows = 0;  // rows of the largest micro-batch
  // Slots in device memory; unused where the device shares the host's memory. Two suffice to copy one batch while the
  // step reads another.
  int device_slots = 2;
  int max_batches_per_take = 1;  // largest count of take(); needs as many device slots
};

// What a worker did while tracing was on. Times are seconds of std::chrono::steady_clock.
struct LoaderSpan {
  int worker = 0;
  std::uint64_t batch = 0;  // the batch that was read, decoded or submitted, in whole or in part; counts from 0
  double began = 0, ended = 0;
};

class Loader {
 public:
  // items: yields this rank's micro-batches in order, or nothing at the end; training yields them without end. Workers
  // call it, one at a time. slots: device slots of the caller, which only this loader uses while it lives; null: the
  // loader allocates its own. All references outlive the loader. Error(config): the worker threads cannot be started.
  Loader(Device&, Source&, const ShardIndex&, const Sampler&, const LoaderOptions&,
         std::function<std::optional<MicroBatch>()> items, DeviceSlots* slots = nullptr);
  ~Loader();  // stops the workers and drops the batches in flight
  // The next batch, or null after the last one. Waits until the workers have filled it. The batch is valid until the
  // next call; next() itself calls wait_until_copied() now, and record_consumed() when it is called again. If a worker
  // failed on this batch, its Error is thrown here, and again by later calls.
  const Batch* next();
  // The next `count` batches, or fewer at the end, for a step that calls wait_until_copied() and record_consumed()
  // itself. Their copies are enqueued, but may not have ended: each starts when the slot's previous batch has been
  // consumed. Valid until the next call.
  std::span<const Batch> take(std::size_t count);
  // Makes `slot` the device slot of the next batch, so that a captured step finds its batches at the same addresses.
  void rewind(std::size_t slot = 0);
  LoaderStats stats() const;
  // Turns tracing on or off: while it is on, workers record what they do.
  void trace(bool on);
  // The spans recorded since the last call, in the order in which they ended.
  std::vector<LoaderSpan> take_spans();
  // Bytes of device memory that a loader with these options allocates.
  static std::size_t device_bytes(const Device&, const ShardIndex&, const LoaderOptions&);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
