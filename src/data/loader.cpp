// A ring of slots. Worker threads claim work units (up to unit_rows rows of one slot) in order, so that all workers
// serve the oldest slot first; a slot is filled when its last unit is done. Slots cycle: free -> filling -> filled ->
// in use (by the step) -> free. The units of the slots not yet filled are the sampler's known future: a worker begins
// as many of them as its engine has use for.
//
// How many slots go round is `depth`. What a deeper ring buys is time: a worker that is late by some milliseconds, as
// on processors that others use, is late by many short steps. What it costs is cache: a slot comes round after all
// others. So with LoaderOptions::prefetch = 0 the ring begins shallow and doubles each time when the step waits
// although the workers had been stopped by a full ring. Memory that a ring so deep does not need is never touched.
#include "millrace/data/loader.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "millrace/base/error.hpp"
#include "slot_layout.hpp"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }
double seconds_of(Clock::time_point t) { return std::chrono::duration<double>(t.time_since_epoch()).count(); }

constexpr std::size_t most_spans = 1 << 16;

constexpr std::size_t units_at_once = 128;     // of a worker
constexpr std::size_t least_depth = 4;         // of a ring that finds its own
constexpr std::size_t most_ahead = 64u << 20;  // bytes of such a ring, unless the least takes more
constexpr std::size_t most_slots = 256;

std::size_t ring_slots(const LoaderOptions& o, std::size_t slot_bytes) {
  if (o.prefetch > 0) return std::size_t(std::max(2, o.prefetch));
  return std::clamp(most_ahead / slot_bytes, least_depth, most_slots);
}

}  // namespace

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
  };

  // A worker's units that were begun, oldest first.
  struct Unit {
    Slot* slot = nullptr;
    std::int64_t begin = 0, end = 0;
  };
  struct Worker {
    Reads& reads;
    int number = 0;
    std::array<Unit, units_at_once> units{};
    std::size_t begun = 0, finished = 0;
    bool room() const { return begun - finished < units.size() && reads.room(); }
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
  const std::size_t most_held;  // slots that may be under way to the device while more are waited for
  Buffer host_memory;
  std::vector<Slot> slots;  // as many as there is memory for; a place of the ring takes any of that
  std::vector<char*> free;  // memory of `depth` slots that no place has, freed first in front: steps meet it in turn
  std::size_t depth = 0;    // places in the ring now
  bool was_full = false;    // since depth changed: all were planned
  std::uint64_t ready = 0;  // filled, and not handed out
  std::unique_ptr<DeviceSlots> own_device_slots;
  DeviceSlots* device_slots;
  std::uint64_t head = 0, tail = 0,
                planned = 0;       // next to hand out; oldest not yet free; next to plan (slots in [tail, planned))
  std::size_t next_on_device = 0;  // of the slots on the device
  bool exhausted = false, ending = false;
  mutable std::mutex mutex;
  std::condition_variable room, filled;
  std::vector<std::unique_ptr<Reads>> reads;  // of each worker; without workers, of next()
  std::unique_ptr<Worker> here;               // without workers
  std::vector<std::thread> threads;
  LoaderFigures figures;
  std::vector<LoaderSpan> spans;
  bool tracing = false;
  Clock::time_point started;
  std::vector<Batch> batches;  // handed out last
  bool ends_use = false;       // theirs ends at the next call

  Impl(Device& d, Source& s, const ShardIndex& i, const Sampler& order, const LoaderOptions& o,
       std::function<std::optional<MicroBatch>()> next, DeviceSlots* on_device)
      : SlotLayout(i, o.max_rows),
        device(d),
        source(s),
        index(i),
        sampler(order),
        items(std::move(next)),
        workers(std::min(o.workers, s.max_workers())),
        max_rows(o.max_rows),
        most_held(std::min(std::size_t(o.together) - 1, ring_slots(o, bytes) - 2)),
        device_slots(on_device) {
    MR_CHECK(o.max_rows >= 1 && o.together >= 1);
    if (!device_slots) {
      own_device_slots = std::make_unique<DeviceSlots>(d, i, o.max_rows, std::size_t(o.device_slots));
      device_slots = own_device_slots.get();
    }
    MR_CHECK(device_slots->count() == 0 || device_slots->count() >= std::size_t(std::max(2, o.together)));
    batches.reserve(std::size_t(o.together));
    const std::size_t count = ring_slots(o, bytes);
    host_memory = Buffer(device, MemoryKind::pinned, bytes * count);
    slots.resize(count), free.reserve(count);
    deepen_to(o.prefetch > 0 ? count : std::max(std::min(least_depth, count), most_held + 2));
    // Units small enough to share a batch among the workers, large enough that claiming costs nothing (about 256 KiB).
    const std::int64_t by_size =
        std::max<std::int64_t>(1, (256 << 10) / std::int64_t(std::max<std::size_t>(1, x_bytes)));
    unit_rows =
        workers > 1 ? std::max<std::int64_t>(1, std::min(by_size, (o.max_rows + workers - 1) / workers)) : o.max_rows;
  }

  // Where a thread cannot start, the others end before the error goes on its way: reporting it takes a thread too.
  void start() {
    started = Clock::now();
    figures.workers = workers;
    try {
      for (int w = 0; w < std::max(1, workers); ++w)
        reads.push_back(source.reads({host_memory.as<char>(), bytes * slots.size()}));
      for (int w = 0; w < workers; ++w) threads.emplace_back([this, w] { work(*reads[std::size_t(w)], w); });
    } catch (const std::system_error& e) {
      const std::size_t started = threads.size();
      stop();
      fail(Exit::config, "cannot start ", workers, " loader threads (", e.code().message(), " after ", started,
           "). lower data.workers");
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    room.notify_all();
    for (auto& r : reads) r->stop();
    for (auto& t : threads) t.join();
    threads.clear();
  }

  ~Impl() {
    stop();
    device.synchronize();
  }

  Slot& slot(std::uint64_t number) { return slots[number % slots.size()]; }

  // Under the lock: rows of the oldest slot that has some left to claim; plans the next item when all are claimed. No
  // slot: nothing to do now.
  Unit claim() {
    if (exhausted) return {};
    if (planned > head)  // all before were claimed when this one was planned
      if (Slot& s = slot(planned - 1); s.claimed < s.item.rows) return take(s);
    if (planned - tail >= depth) return was_full = true, Unit{};
    Slot& s = slot(planned);
    s = Slot{};
    s.host = free.front(), s.planned = true, s.number = planned;
    free.erase(free.begin());
    try {
      const auto item = items();
      if (item) s.item = *item;
      MR_CHECK(!item || (item->rows >= 1 && item->rows <= max_rows), "a micro-batch of ", item->rows, " rows");
      s.last = !item;
    } catch (...) {
      s.failure = std::current_exception(), s.last = true;
    }
    exhausted = s.last;
    ++planned;
    if (!s.last) return take(s);
    s.filled = true, ++ready;
    filled.notify_all();
    return {};
  }

  Unit take(Slot& s) {
    const std::int64_t begin = s.claimed;
    s.claimed = std::min(s.item.rows, s.claimed + unit_rows);
    return {&s, begin, s.claimed};
  }

  void begin(Reads& reads, const Unit& u) {
    const Slot& s = *u.slot;
    auto* ids = reinterpret_cast<std::int64_t*>(s.host + ids_offset) + u.begin;
    const auto first = std::size_t(u.begin), rows = std::size_t(u.end - u.begin);
    sampler.ids({s.item.epoch, s.item.step, s.item.first + u.begin, u.end - u.begin}, ids);
    reads.epoch(s.item.epoch);
    reads.begin({ids, rows}, s.host + first * x_bytes, s.host + y_offset + first * y_bytes);
  }

  // Begins the unit, if any, and unless there is room for more finishes the oldest and books it: outside of and under
  // the lock. The consumer is woken without it: it would only wake to wait for the lock.
  void advance(Worker& w, const Unit& unit, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const auto began = Clock::now();
    if (unit.slot) begin(w.reads, w.units[w.begun++ % w.units.size()] = unit);
    const bool finishing = !unit.slot || !w.room();
    std::exception_ptr failure;
    try {
      if (finishing) w.reads.finish();
    } catch (...) {
      failure = std::current_exception();
    }
    const double took = seconds_since(began);
    lock.lock();
    figures.read_seconds += took;
    const Unit done = finishing ? w.units[w.finished++ % w.units.size()] : unit;
    Slot& s = *done.slot;
    if (tracing && spans.size() < most_spans)
      spans.push_back({w.number, s.number, seconds_of(began), seconds_of(began) + took});
    if (!finishing) return;
    figures.samples += std::uint64_t(done.end - done.begin);
    figures.bytes_read += std::uint64_t(done.end - done.begin) * (x_bytes + y_bytes);
    if (failure && !s.failure) s.failure = failure;
    s.skipped += w.reads.skipped();
    s.finished += done.end - done.begin;
    if (s.finished < s.item.rows) return;
    s.filled = true, ++ready;
    if (workers == 0) return;
    lock.unlock();
    filled.notify_one();
    lock.lock();
  }

  void await_room(std::unique_lock<std::mutex>& lock, Unit& unit) {
    const auto ready = [&] { return ending || (unit = claim()).slot; };
    if (ready()) return;
    const auto began = Clock::now();
    room.wait(lock, ready);
    figures.room_seconds += seconds_since(began);
  }

  void work(Reads& reads, int number) {
    Worker w{reads, number};
    std::unique_lock lock(mutex);
    for (;;) {
      Unit unit;
      if (w.idle())
        await_room(lock, unit);
      else if (w.room())
        unit = claim();
      if (ending) return;
      advance(w, unit, lock);
    }
  }

  std::span<const Batch> take(std::size_t count, bool uses) {
    MR_CHECK(count <= batches.capacity() && (count <= 1 || device_slots->count() > 0));
    if (ends_use)
      for (const Batch& b : batches) b.end_use();
    ends_use = uses;
    batches.clear();
    while (batches.size() < count) {
      while (head - tail > most_held) release_oldest();
      Slot* s = take_filled();
      if (!s) break;
      hand_over(*s);
      if (uses) batches.back().begin_use();
    }
    return batches;
  }

  // The next slot, once it is filled; null: none is left.
  Slot* take_filled() {
    std::unique_lock lock(mutex);
    const std::uint64_t seen = ready;
    const auto began = Clock::now();
    const auto there = [this] { return head < planned && slot(head).filled; };
    if (workers == 0) fill_here(lock);
    if (!there()) {
      deepen();
      filled.wait(lock, there);
    }
    Slot& s = slot(head);
    figures.wait_seconds += seconds_since(began);
    if (s.failure) std::rethrow_exception(s.failure);
    if (s.last) return nullptr;
    if (figures.batches == 0) figures.first_batch_seconds = seconds_since(started);
    figures.queue_depth_sum += seen, ++figures.batches;
    ++figures.queue_depths[std::min<std::size_t>(seen, figures.queue_depths.size() - 1)];
    ++head, --ready;
    return &s;
  }

  // Under the lock, as the step has to wait: would it have been there, had the ring been deeper?
  void deepen() {
    if (!was_full || depth == slots.size()) return;
    deepen_to(std::min(2 * depth, slots.size()));
    was_full = false;
    room.notify_all();
  }

  void deepen_to(std::size_t wanted) {
    for (; depth < wanted; ++depth) free.push_back(host_memory.as<char>() + depth * bytes);
  }

  void fill_here(std::unique_lock<std::mutex>& lock) {
    if (!here) here.reset(new Worker{*reads.front()});
    while (!(head < planned && slot(head).filled)) {
      const Unit unit = here->room() ? claim() : Unit{};
      if (unit.slot || !here->idle()) advance(*here, unit, lock);
    }
  }

  // It may be overwritten once its bytes are on the device. That is long past, unless the bus is the limit or the step
  // is behind by more batches than there are slots on the device.
  void release_oldest() {
    Slot& s = slot(tail);  // head and tail are moved by this thread alone
    if (s.copied) s.copied->synchronize();
    bool enough = false;  // room to wake the workers for, who fill several slots then: all that can become free / 4
    {
      const std::lock_guard lock(mutex);
      s.planned = false;
      free.push_back(s.host);
      ++tail;
      enough = depth - std::min(depth, planned - tail) >= std::max<std::size_t>(1, (depth - most_held - 1) / 4);
    }
    if (enough) room.notify_all();
  }

  void hand_over(Slot& s) {
    char* at = s.host;
    Batch batch;
    if (device_slots->count() > 0) {
      DeviceSlots::Slot& there = (*device_slots)[next_on_device];
      next_on_device = (next_on_device + 1) % device_slots->count();
      at = there.data;
      there.consumed->wait(Lane::copy);  // the first time it holds nobody up
      device.copy_in(Lane::copy, at, s.host, bytes);
      there.copied->record(Lane::copy);
      s.copied = there.copied.get();
      batch.slot = &there;
    }
    const std::int64_t rows = s.item.rows;
    const auto with_rows = [rows](const Shape& one) {
      Shape out;
      out.rank = one.rank + 1;
      out.dims[0] = rows;
      for (int a = 0; a < one.rank; ++a) out.dims[std::size_t(a) + 1] = one.dims[std::size_t(a)];
      return out;
    };
    batch.item = s.item;
    batch.skipped = s.skipped;
    batch.x = {at, index.x_dtype, with_rows(index.sample)};
    batch.ids = {at + ids_offset, DType::i64, {rows}};
    batch.y = {at + y_offset, index.labels ? DType::i32 : DType::f32,
               index.labels ? Shape{rows} : with_rows(index.target)};
    batches.push_back(batch);
  }
};

Loader::Loader(Device& device, Source& source, const ShardIndex& index, const Sampler& sampler,
               const LoaderOptions& options, std::function<std::optional<MicroBatch>()> items, DeviceSlots* slots)
    : impl_(std::make_unique<Impl>(device, source, index, sampler, options, std::move(items), slots)) {
  impl_->start();
}
Loader::~Loader() = default;
const Batch* Loader::next() {
  const auto one = impl_->take(1, true);
  return one.empty() ? nullptr : one.data();
}
std::span<const Batch> Loader::take(std::size_t count) { return impl_->take(count, false); }
void Loader::rewind(std::size_t slot) {
  const std::size_t count = impl_->device_slots->count();
  MR_CHECK(count == 0 || slot < count);
  impl_->next_on_device = slot;
}
std::size_t Loader::device_bytes(const Device& device, const ShardIndex& index, const LoaderOptions& options) {
  const std::size_t bytes = SlotLayout(index, options.max_rows).bytes;
  return bytes * (device.shares_host_memory() ? ring_slots(options, bytes) : std::size_t(options.device_slots));
}
void Loader::trace(bool on) {
  const std::lock_guard lock(impl_->mutex);
  impl_->tracing = on;
}
std::vector<LoaderSpan> Loader::take_spans() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->spans, {});
}
LoaderFigures Loader::figures() const {
  const std::lock_guard lock(impl_->mutex);
  LoaderFigures out = impl_->figures;
  out.chunks_decoded = impl_->source.chunks_decoded();
  return out;
}

}  // namespace millrace
