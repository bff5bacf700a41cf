// The part of the loader that the step calls: it hands out batches in order and copies them to the device.
// loader_workers.cpp contains the part that fills them.
#include "millrace/data/load/loader.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "data/load/loader_ring.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

// Limits of a ring that finds its own depth (prefetch = 0).
constexpr std::size_t min_ring_depth = 4;
constexpr std::size_t max_ring_bytes = 64u << 20;  // unless min_ring_depth slots need more
constexpr std::size_t max_depth = 256;
// A trainer that asks for the next batch sooner than this is limited by the loader, and would be woken for every batch.
// Where threads outnumber the cores, that costs the workers a tenth of their time. It waits for several batches at
// once, but not long.
constexpr double short_step_seconds = 50e-6;
constexpr std::chrono::microseconds max_gathering{500};
constexpr std::size_t max_gathered = 8;
// One copy of this many is timed, because reading a timestamp costs the host some microseconds.
constexpr std::uint64_t timed_copy_interval = 8;

std::size_t ring_slots(const LoaderOptions& o, std::size_t slot_bytes) {
  if (o.prefetch > 0) return std::size_t(std::max(2, o.prefetch));
  // A take() of several batches holds their slots until their copies are done, while the workers fill others.
  const std::size_t least = min_ring_depth + (o.max_batches_per_take > 1 ? std::size_t(o.max_batches_per_take) : 0);
  return std::clamp(max_ring_bytes / slot_bytes, least, std::max(least, max_depth));
}

}  // namespace

Loader::Impl::Impl(Device& d, Source& s, const ShardIndex& i, const Sampler& order, const LoaderOptions& o,
                   std::function<std::optional<MicroBatch>()> next, DeviceSlots* on_device)
    : SlotLayout(i, o.max_rows),
      device(d),
      source(s),
      index(i),
      sampler(order),
      items(std::move(next)),
      workers(std::min(o.workers, s.max_workers())),
      max_rows(o.max_rows),
      max_in_flight_slots(std::min(std::size_t(o.max_batches_per_take) - 1, ring_slots(o, bytes) - 2)),
      device_slots(on_device) {
  MR_CHECK(o.max_rows >= 1 && o.max_batches_per_take >= 1);
  if (!device_slots) {
    own_device_slots = std::make_unique<DeviceSlots>(d, i, o.max_rows, std::size_t(o.device_slots));
    device_slots = own_device_slots.get();
  }
  if (device_slots->count() > 0) copy_times = device.make_timestamps(2);
  MR_CHECK(device_slots->count() == 0 || device_slots->count() >= std::size_t(std::max(2, o.max_batches_per_take)));
  batches.reserve(std::size_t(o.max_batches_per_take));
  const std::size_t count = ring_slots(o, bytes);
  host_memory = Buffer(device, MemoryKind::pinned, bytes * count);
  slots.resize(count);
  free.reserve(count);
  deepen_to(o.prefetch > 0 ? count : std::max(std::min(min_ring_depth, count), max_in_flight_slots + 2));
  // A unit is small enough that all workers share a batch, and large enough (about 256 KiB) that claiming it is cheap.
  const std::int64_t by_size = std::max<std::int64_t>(1, (256 << 10) / std::int64_t(std::max<std::size_t>(1, x_bytes)));
  unit_rows =
      workers > 1 ? std::max<std::int64_t>(1, std::min(by_size, (o.max_rows + workers - 1) / workers)) : o.max_rows;
}

Loader::Impl::~Impl() {
  stop();
  try {
    device.synchronize();
  } catch (const Error&) {  // the device has failed, which another call reports: no copy runs any more
  }
}

std::span<const Batch> Loader::Impl::take(std::size_t count, bool manage_use) {
  MR_CHECK(count <= batches.capacity() && (count <= 1 || device_slots->count() > 0));
  if (managed_use)
    for (const Batch& b : batches) b.record_consumed();
  managed_use = manage_use;
  batches.clear();
  while (batches.size() < count) {
    while (head - tail > max_in_flight_slots) release_oldest();
    HostSlot* s = take_filled();
    if (!s) break;
    hand_over(*s);
    if (manage_use) batches.back().wait_until_copied();
  }
  return batches;
}

Loader::Impl::HostSlot* Loader::Impl::take_filled() {
  std::unique_lock lock(mutex);
  const std::uint64_t seen = ready;
  const double began = steady_seconds();
  const auto next_filled = [this] { return head < planned && slot(head).filled; };
  if (workers == 0) fill_inline(lock);
  if (!next_filled()) {
    deepen();
    if (began - taken < short_step_seconds && max_in_flight_slots == 0) gather(lock);
    filled.wait(lock, next_filled);
  }
  HostSlot& s = slot(head);
  taken = steady_seconds();
  stats.wait_seconds += taken - began;
  stats.clock_reads += 2;
  if (s.failure) std::rethrow_exception(s.failure);
  if (s.last) return nullptr;
  if (stats.batches == 0) stats.first_batch_seconds = steady_seconds() - started;
  stats.queue_depth_sum += seen;
  ++stats.batches;
  ++stats.queue_depths[std::min<std::size_t>(seen, stats.queue_depths.size() - 1)];
  ++head;
  --ready;
  return &s;
}

void Loader::Impl::gather(std::unique_lock<std::mutex>& lock) {
  gathered = std::min(max_gathered, depth / 2);
  filled.wait_for(lock, max_gathering, [this] { return ready >= gathered || exhausted || ending; });
  gathered = 1;
}

void Loader::Impl::deepen() {
  if (!was_full || depth == slots.size()) return;
  deepen_to(std::min(2 * depth, slots.size()));
  was_full = false;
  slot_freed.notify_all();
}

void Loader::Impl::deepen_to(std::size_t wanted) {
  for (; depth < wanted; ++depth) free.push_back(host_memory.as<char>() + depth * bytes);
}

void Loader::Impl::release_oldest() {
  HostSlot& s = slot(tail);  // only this thread changes head and tail
  if (s.copied) s.copied->synchronize();
  std::array<double, 2> copy{};
  if (s.timed) {
    copy_times->read(copy);
    timing = false;
  }
  // Workers are woken only when a quarter of the slots that can become free are free: they then fill several at once.
  bool enough_free = false;
  {
    const std::lock_guard lock(mutex);
    if (s.timed) {
      stats.copy_seconds += copy[1];
      stats.copied_bytes += bytes;
      stats.copied_samples += std::uint64_t(s.item.rows);
    }
    s.planned = false;
    free.push_back(s.host);
    ++tail;
    const std::size_t free_slots = depth - std::min(depth, planned - tail);
    enough_free = free_slots >= std::max<std::size_t>(1, (depth - max_in_flight_slots - 1) / 4);
  }
  if (enough_free) slot_freed.notify_all();
}

void Loader::Impl::hand_over(HostSlot& s) {
  char* at = s.host;
  Batch batch;
  if (device_slots->count() > 0) {
    DeviceSlots::Slot& target = (*device_slots)[next_on_device];
    next_on_device = (next_on_device + 1) % device_slots->count();
    at = target.data;
    // The copy must not overwrite the batch that the step may still read there. An event that was never recorded does
    // not block the stream, so the first copies start at once.
    target.consumed->wait(Stream::copy);
    s.timed = !timing && stats.batches % timed_copy_interval == 2;
    if (s.timed) {
      timing = true;
      copy_times->record(Stream::copy, 0);
    }
    device.copy_to_device(Stream::copy, at, s.host, bytes);
    if (s.timed) copy_times->record(Stream::copy, 1);
    // Batch::wait_until_copied() makes the compute stream wait for this event before the step reads the batch.
    target.copied->record(Stream::copy);
    s.copied = target.copied.get();
    batch.slot = &target;
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
  batch.x = {at, index.x.dtype, with_rows(index.sample)};
  batch.ids = {at + ids_offset, DType::i64, {rows}};
  batch.y = {at + y_offset, index.y.labels ? DType::i32 : DType::f32, with_rows(index.y.target)};
  batches.push_back(batch);
}

Loader::Loader(Device& device, Source& source, const ShardIndex& index, const Sampler& sampler,
               const LoaderOptions& options, std::function<std::optional<MicroBatch>()> items, DeviceSlots* slots)
    : impl_(std::make_unique<Impl>(device, source, index, sampler, options, std::move(items), slots)) {
  impl_->start();
}
Loader::~Loader() = default;
const Batch* Loader::next() {
  const auto taken = impl_->take(1, true);
  return taken.empty() ? nullptr : taken.data();
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
LoaderStats Loader::stats() const {
  const std::lock_guard lock(impl_->mutex);
  LoaderStats out = impl_->stats;
  out.decoded = impl_->source.decoded();
  return out;
}

}  // namespace millrace
