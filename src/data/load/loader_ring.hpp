// The ring of host slots inside the loader. Worker threads claim units (up to unit_rows rows of one slot) in order, so
// that all workers serve the oldest slot first. A slot is filled when its last unit has been read. Slots cycle:
//
//   free -> planned (a micro-batch is assigned, workers fill it) -> filled -> handed out to the step -> free
//
// A slot is handed out when take() enqueues its copy to the device, or, without a copy, when the step gets its address.
// This host slot is free again when its copy has ended (the `copied` event of the device slot), or, without a copy,
// when the step asks for the next batch.
//
// The units of the slots that are not yet filled are the known future of the sampler. A worker submits as many of them
// as its engine can use.
//
// `depth` is the number of slots in use. A deeper ring buys time: a worker that is late by a few milliseconds, as on a
// CPU that other programs use, delays many short steps. It costs cache: a slot is reused only after all others. So with
// LoaderOptions::prefetch = 0 the ring starts shallow. It doubles each time the step has to wait although a full ring
// had stopped the workers. Slots beyond `depth` are never touched and take no physical memory. Internal to data/load.
#pragma once
#include <array>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "millrace/data/load/loader.hpp"
#include "millrace/data/load/slot_layout.hpp"

namespace millrace {

struct Loader::Impl : SlotLayout {
  struct HostSlot {
    char* host = nullptr;     // the memory that holds the batch
    Event* copied = nullptr;  // of the device slot that this slot is copied to; null before that
    MicroBatch item;
    std::uint64_t number = 0;   // of the batch, from the loader's start
    std::int64_t claimed = 0;   // rows that workers have claimed
    std::int64_t finished = 0;  // rows that have been read
    bool planned = false, filled = false;
    bool last = false;           // no batch: there are no more micro-batches
    std::exception_ptr failure;  // thrown when the step asks for this batch
    std::int64_t skipped = 0;    // samples that could not be read
    bool timed = false;          // the copy to the device is between the two timestamps of copy_times
  };

  // Rows [begin, end) of a slot, which one worker reads.
  struct Unit {
    HostSlot* slot = nullptr;
    std::int64_t begin = 0, end = 0;
  };
  struct Worker {
    ReadQueue& reads;
    int number = 0;
    std::array<Unit, 128> units{};  // submitted and not finished: numbers [finished, begun), each modulo 128
    std::size_t begun = 0, finished = 0;
    bool can_submit() const { return begun - finished < units.size() && reads.can_submit(); }
    bool idle() const { return begun == finished; }
  };

  Device& device;
  Source& source;
  const ShardIndex& index;
  const Sampler& sampler;
  std::function<std::optional<MicroBatch>()> items;
  const int workers;
  const std::int64_t max_rows;
  std::int64_t unit_rows = 1;
  const std::size_t
      max_in_flight_slots;  // host slots that may wait for their copy while the step takes further batches
  Buffer host_memory;
  std::vector<HostSlot> slots;  // as many as host_memory can hold; slot k may use any part of that memory
  std::vector<char*> free;      // memory of free slots; the part that was freed first comes first
  std::size_t depth = 0;        // slots in use now
  bool was_full = false;        // since the last change of depth, all slots were planned at some time
  std::size_t gathered = 1;     // the step is woken when as many slots are ready
  double taken = 0;             // steady_seconds() when the step got its last batch
  std::uint64_t ready = 0;      // slots that are filled and not handed out
  std::unique_ptr<DeviceSlots> own_device_slots;
  DeviceSlots* device_slots;
  std::unique_ptr<Timestamps> copy_times;  // around the copy of one slot at a time
  bool timing = false;                     // copy_times is in use
  // Numbers of batches: the next one to hand out, the oldest one that is not free, and the next one to plan. The slots
  // in use are [tail, planned).
  std::uint64_t head = 0, tail = 0, planned = 0;
  std::size_t next_on_device = 0;  // device slot of the next batch
  bool exhausted = false;          // there are no more micro-batches
  bool ending = false;             // the loader is being destroyed
  mutable std::mutex mutex;
  std::condition_variable slot_freed, filled;
  std::vector<std::unique_ptr<ReadQueue>> reads;  // one for each worker; without workers, one for take()
  std::unique_ptr<Worker> inline_worker;          // without workers
  std::vector<std::thread> threads;
  LoaderStats stats;
  std::vector<LoaderSpan> spans;
  bool tracing = false;
  double started = 0;          // steady_seconds() at the start
  std::vector<Batch> batches;  // those handed out by the last call
  bool managed_use = false;    // next() handed them out: the next call ends their use

  Impl(Device&, Source&, const ShardIndex&, const Sampler&, const LoaderOptions&,
       std::function<std::optional<MicroBatch>()> items, DeviceSlots*);
  ~Impl();
  HostSlot& slot(std::uint64_t number) { return slots[number % slots.size()]; }

  // The workers: loader_workers.cpp.

  // Starts the workers. If one thread cannot be started, the others are stopped before the error is thrown, because
  // reporting it needs a thread too.
  void start();
  void stop();
  // Call with the mutex locked: claims rows of the oldest slot that has unclaimed ones. If all are claimed, plans the
  // next micro-batch. No slot in the result: there is nothing to do now.
  Unit claim();
  Unit claim_rows(HostSlot&);
  void begin(ReadQueue&, const Unit&);
  void normalise_targets(const Unit&) const;  // that was read, as ValueConversion::target_mean says
  // Submits the unit, if it has a slot. Then, unless the worker can submit more, finishes the oldest unit and updates
  // its slot. Reading happens with the mutex unlocked, updating with it locked. The step is woken with the mutex
  // unlocked; otherwise it would wake up only to wait for the mutex.
  void advance(Worker&, const Unit&, std::unique_lock<std::mutex>&);
  void wait_for_free_slot(std::unique_lock<std::mutex>&, Unit&);
  void work(ReadQueue&, int number);
  void fill_inline(std::unique_lock<std::mutex>&);

  // The calls of the step: loader.cpp.

  // manage_use: wait_until_copied() of each batch is called now and record_consumed() by the next call.
  std::span<const Batch> take(std::size_t count, bool manage_use);
  // Waits until the next slot is filled. Null: there are no more batches.
  HostSlot* take_filled();
  // Call with the mutex locked when a very short step has to wait: waits until several batches are ready, for at most
  // half a millisecond.
  void gather(std::unique_lock<std::mutex>&);
  // Call with the mutex locked when the step has to wait: doubles the depth if a deeper ring would have held the batch.
  void deepen();
  void deepen_to(std::size_t wanted);
  // Frees the oldest slot once the device has its bytes. The copy has usually ended long before, unless the bus is the
  // bottleneck or the step is behind by more batches than there are device slots.
  void release_oldest();
  // Enqueues the copy of a slot to the device and appends its batch to `batches`.
  void hand_over(HostSlot&);
};

}  // namespace millrace
