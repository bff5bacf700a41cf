// Loader: worker threads fill a ring of slots ahead of the step; the copy lane double-buffers to the device. The order
// of batches is that of the items, whatever the workers do.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "millrace/data/sampler.hpp"
#include "millrace/data/source.hpp"
#include "millrace/device/device.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

// On the device once `ready` has been waited for (next() makes the compute lane wait). Valid until the next next().
struct Batch {
  MicroBatch item;
  Tensor x;    // raw, (rows, sample...) with the logical shape; stored dtype and layout
  Tensor y;    // int32 (rows), or float32 (rows, target...)
  Tensor ids;  // int64 (rows)
};

struct LoaderOptions {
  int workers = 1;   // 0: next() reads by itself
  int prefetch = 3;  // slots in the ring; at least 2
  std::int64_t max_rows = 0;
};

class Loader {
 public:
  // items: the micro-batches of this rank in order, endless for training; none left: next() returns null. Called by
  // the workers, one at a time.
  Loader(Device&, Source&, const ShardIndex&, const Sampler&, const LoaderOptions&,
         std::function<std::optional<MicroBatch>()> items);
  ~Loader();  // stops the workers; slots in flight are dropped
  // The next batch; waits for the workers if none is filled. A worker's failure is thrown here, at its batch's turn,
  // as the Error it was (and again by later calls).
  const Batch* next();
  // From here on batches lie where they would from the beginning on: ranks that have taken different numbers of them
  // are in step again.
  void rewind();
  LoaderFigures figures() const;
  // What a loader of these samples takes of the device's memory.
  static std::size_t device_bytes(const Device&, const ShardIndex&, const LoaderOptions&);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
