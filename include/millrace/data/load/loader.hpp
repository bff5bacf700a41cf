// Loader: worker threads fill a ring of slots ahead of the step; the copy lane brings them to slots on the device while
// others are computed on. The order of batches is that of the items, whatever the workers do.
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

struct Batch {
  MicroBatch item;
  Tensor x;                           // raw, (rows, sample...) with the logical shape; stored dtype and layout
  Tensor y;                           // int32 (rows), or float32 (rows, target...)
  Tensor ids;                         // int64 (rows)
  std::int64_t skipped = 0;           // samples that could not be read: zeros, with the label -1
  DeviceSlots::Slot* slot = nullptr;  // null where the device reads it in host memory

  // The compute lane waits until it is on the device; tells that it has been read. Either may be part of a recorded
  // step: a batch of take() is enqueued before that step runs.
  void begin_use() const {
    if (slot) slot->copied->wait(Stream::compute);
  }
  void end_use() const {
    if (slot) slot->consumed->record(Stream::compute);
  }
};

struct LoaderOptions {
  int workers = 1;  // 0: next() reads by itself
  // Slots in the ring, at least 2. 0: 4, and twice as many whenever the step waits for what could have been read
  // before, up to 64 MiB of slots (4 in any case) or 256.
  int prefetch = 3;
  std::int64_t max_rows = 0;
  int device_slots = 2;  // on the device, where it does not share the host's memory: one is copied to, one is read
  int max_batches_per_take = 1;  // batches of one take(), at most; as many device slots at least
};

// What a worker did, as long as it is traced. Seconds since the epoch of std::chrono::steady_clock.
struct LoaderSpan {
  int worker = 0;
  std::uint64_t batch = 0;  // read, decoded or begun, or a part of it; they count from the loader's start
  double began = 0, ended = 0;
};

class Loader {
 public:
  // items: the micro-batches of this rank in order, endless for training; none left: next() returns null. Called by
  // the workers, one at a time. slots: its owner's, which nothing else uses meanwhile.
  Loader(Device&, Source&, const ShardIndex&, const Sampler&, const LoaderOptions&,
         std::function<std::optional<MicroBatch>()> items, DeviceSlots* slots = nullptr);
  ~Loader();  // stops the workers; slots in flight are dropped
  // The next batch; waits for the workers if none is filled. Its use begins here and ends at the next call, until when
  // it is valid. A worker's failure is thrown here, at its batch's turn, as the Error it was (and again by later
  // calls).
  const Batch* next();
  // The next `count` batches, or as many as are left, for a step that begins and ends the use of each. Their copies are
  // enqueued, not done: each begins when the use of the batch before it in its device slot has ended. Valid until the
  // next call.
  std::span<const Batch> take(std::size_t count);
  // The next batch lies in this slot on the device, if it has slots: steps that were recorded find theirs again.
  void rewind(std::size_t slot = 0);
  LoaderStats stats() const;
  // Workers note what they do from here on, or no longer.
  void trace(bool on);
  std::vector<LoaderSpan> take_spans();  // those noted since the last call, in order of their ends
  // What a loader of these samples takes of the device's memory.
  static std::size_t device_bytes(const Device&, const ShardIndex&, const LoaderOptions&);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
