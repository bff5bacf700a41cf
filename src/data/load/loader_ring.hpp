// A ring of slots. Worker threads claim work units (up to unit_rows rows of one slot) in order, so that all workers
// serve the oldest slot first; a slot is filled when its last unit is done. Slots cycle: free -> filling -> filled ->
// in use (by the step) -> free. The units of the slots not yet filled are the sampler's known future: a worker begins
// as many of them as its engine has use for.
//
// How many slots go round is `depth`. What a deeper ring buys is time: a worker that is late by some milliseconds, as
// on processors that others use, is late by many short steps. What it costs is cache: a slot comes round after all
// others. So with LoaderOptions::prefetch = 0 the ring begins shallow and doubles each time when the step waits
// although the workers had been stopped by a full ring. Memory that a ring so deep does not need is never touched.
// Private to the data room.
#pragma once
#include <array>
#include <chrono>
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
  struct Slot {
    char* host = nullptr;
    Event* copied = nullptr;  // while handed out: the device has its bytes
    MicroBatch item;
    std::uint64_t number = 0;
    std::int64_t claimed = 0, finished = 0;  // rows
    bool planned = false, filled = false, last = false;
    std::exception_ptr failure;
    std::int64_t skipped = 0;
    bool timed = false;  // its copy
  };

  // A worker's units that were begun, oldest first.
  struct Unit {
    Slot* slot = nullptr;
    std::int64_t begin = 0, end = 0;
  };
  struct Worker {
    ReadQueue& reads;
    int number = 0;
    std::array<Unit, 128> units{};
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
  const std::size_t max_in_flight_slots;  // slots that may be under way to the device while more are waited for
  Buffer host_memory;
  std::vector<Slot> slots;  // as many as there is memory for; a place of the ring takes any of that
  std::vector<char*> free;  // memory of `depth` slots that no place has, freed first in front: steps meet it in turn
  std::size_t depth = 0;    // places in the ring now
  bool was_full = false;    // since depth changed: all were planned
  std::uint64_t ready = 0;  // filled, and not handed out
  std::unique_ptr<DeviceSlots> own_device_slots;
  DeviceSlots* device_slots;
  std::unique_ptr<Timestamps> copy_marks;  // around the copy of one slot at a time
  bool timing = false;                     // they are in use
  std::uint64_t head = 0, tail = 0,
                planned = 0;       // next to hand out; oldest not yet free; next to plan (slots in [tail, planned))
  std::size_t next_on_device = 0;  // of the slots on the device
  bool exhausted = false, ending = false;
  mutable std::mutex mutex;
  std::condition_variable slot_freed, filled;
  std::vector<std::unique_ptr<ReadQueue>> reads;  // of each worker; without workers, of next()
  std::unique_ptr<Worker> inline_worker;          // without workers
  std::vector<std::thread> threads;
  LoaderStats stats;
  std::vector<LoaderSpan> spans;
  bool tracing = false;
  std::chrono::steady_clock::time_point started;
  std::vector<Batch> batches;  // handed out last
  bool ends_use = false;       // theirs ends at the next call

  Impl(Device&, Source&, const ShardIndex&, const Sampler&, const LoaderOptions&,
       std::function<std::optional<MicroBatch>()> items, DeviceSlots*);
  ~Impl();
  Slot& slot(std::uint64_t number) { return slots[number % slots.size()]; }

  // What workers do: loader_workers.cpp.
  // Where a thread cannot start, the others end before the error goes on its way: reporting it takes a thread too.
  void start();
  void stop();
  // Under the lock: rows of the oldest slot that has some left to claim; plans the next item when all are claimed. No
  // slot: nothing to do now.
  Unit claim();
  Unit take(Slot&);
  void begin(ReadQueue&, const Unit&);
  // Begins the unit, if any, and unless there is room for more finishes the oldest and books it: outside of and under
  // the lock. The consumer is woken without it: it would only wake to wait for the lock.
  void advance(Worker&, const Unit&, std::unique_lock<std::mutex>&);
  void wait_for_free_slot(std::unique_lock<std::mutex>&, Unit&);
  void work(ReadQueue&, int number);
  void fill_inline(std::unique_lock<std::mutex>&);

  // What the step asks for: loader.cpp.
  std::span<const Batch> take(std::size_t count, bool uses);
  // The next slot, once it is filled; null: none is left.
  Slot* take_filled();
  // Under the lock, as the step has to wait: would it have been there, had the ring been deeper?
  void deepen();
  void deepen_to(std::size_t wanted);
  // It may be overwritten once its bytes are on the device. That is long past, unless the bus is the limit or the step
  // is behind by more batches than there are slots on the device.
  void release_oldest();
  void hand_over(Slot&);
};

}  // namespace millrace
