// The workers of the loader: they claim rows of slots, read them, and tell the step when a slot is filled.
#include <algorithm>
#include <system_error>
#include <utility>

#include "data/load/loader_ring.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_spans = 1 << 16;  // while tracing; later ones are dropped

}  // namespace

void Loader::Impl::start() {
  started = steady_seconds();
  stats.workers = workers;
  try {
    for (int w = 0; w < std::max(1, workers); ++w)
      reads.push_back(source.make_read_queue({host_memory.as<char>(), bytes * slots.size()}));
    for (int w = 0; w < workers; ++w) threads.emplace_back([this, w] { work(*reads[std::size_t(w)], w); });
  } catch (const std::system_error& e) {
    const std::size_t started_threads = threads.size();
    stop();
    fail(Exit::config, "cannot start {} loader threads ({} after {}). lower data.workers", workers, e.code().message(),
         started_threads);
  }
}

void Loader::Impl::stop() {
  {
    const std::lock_guard lock(mutex);
    ending = true;
  }
  slot_freed.notify_all();
  for (auto& r : reads) r->stop();
  for (auto& t : threads) t.join();
  threads.clear();
}

Loader::Impl::Unit Loader::Impl::claim() {
  if (exhausted) return {};
  if (planned > head)  // all rows of earlier slots were claimed when this one was planned
    if (HostSlot& s = slot(planned - 1); s.claimed < s.item.rows) return claim_rows(s);
  if (planned - tail >= depth) {
    was_full = true;
    return {};
  }
  HostSlot& s = slot(planned);
  s = HostSlot{};
  s.host = free.front();
  s.planned = true;
  s.number = planned;
  free.erase(free.begin());
  try {
    const auto item = items();
    if (item) s.item = *item;
    MR_CHECK(!item || (item->rows >= 1 && item->rows <= max_rows), "a micro-batch of {} rows", item->rows);
    s.last = !item;
  } catch (...) {
    s.failure = std::current_exception();
    s.last = true;
  }
  exhausted = s.last;
  ++planned;
  if (!s.last) return claim_rows(s);
  s.filled = true;
  ++ready;
  filled.notify_all();
  return {};
}

Loader::Impl::Unit Loader::Impl::claim_rows(HostSlot& s) {
  const std::int64_t begin = s.claimed;
  s.claimed = std::min(s.item.rows, s.claimed + unit_rows);
  return {&s, begin, s.claimed};
}

void Loader::Impl::begin(ReadQueue& reads, const Unit& u) {
  const HostSlot& s = *u.slot;
  auto* ids = reinterpret_cast<std::int64_t*>(s.host + ids_offset) + u.begin;
  const auto first = std::size_t(u.begin);
  const auto rows = std::size_t(u.end - u.begin);
  sampler.ids({s.item.epoch, s.item.step, s.item.first + u.begin, u.end - u.begin}, ids);
  reads.epoch(s.item.epoch);
  reads.begin({ids, rows}, s.host + first * x_bytes, s.host + y_offset + first * y_bytes);
}

void Loader::Impl::normalise_targets(const Unit& u) const {
  const std::vector<double>&mean = index.values.target_mean, &std = index.values.target_std;
  if (mean.empty()) return;
  const std::size_t columns = y_bytes / sizeof(float);
  auto* y = reinterpret_cast<float*>(u.slot->host + y_offset + std::size_t(u.begin) * y_bytes);
  for (std::int64_t row = u.begin; row < u.end; ++row, y += columns)
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t k = mean.size() == 1 ? 0 : c;
      if (std[k] > 0) y[c] = float((double(y[c]) - mean[k]) / std[k]);
    }
}

void Loader::Impl::advance(Worker& w, const Unit& unit, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const double began = steady_seconds();
  if (unit.slot) begin(w.reads, w.units[w.begun++ % w.units.size()] = unit);
  const bool finishing = !unit.slot || !w.can_submit();
  std::exception_ptr failure;
  try {
    if (finishing) {
      w.reads.finish();
      normalise_targets(w.units[w.finished % w.units.size()]);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  const double ended = steady_seconds();
  lock.lock();
  stats.read_seconds += ended - began;
  stats.clock_reads += 2;
  const Unit done = finishing ? w.units[w.finished++ % w.units.size()] : unit;
  HostSlot& s = *done.slot;
  if (tracing && spans.size() < max_spans) spans.push_back({w.number, s.number, began, ended});
  if (!finishing) return;
  stats.samples += std::uint64_t(done.end - done.begin);
  stats.bytes_read += std::uint64_t(done.end - done.begin) * (x_bytes + y_bytes);
  if (failure && !s.failure) s.failure = failure;
  s.skipped += w.reads.skipped();
  s.finished += done.end - done.begin;
  if (s.finished < s.item.rows) return;
  s.filled = true;
  ++ready;
  if (workers == 0 || ready < gathered) return;
  lock.unlock();
  filled.notify_one();
  lock.lock();
}

void Loader::Impl::wait_for_free_slot(std::unique_lock<std::mutex>& lock, Unit& unit) {
  const auto claimed_or_ending = [&] { return ending || (unit = claim()).slot; };
  if (claimed_or_ending()) return;
  const double began = steady_seconds();
  slot_freed.wait(lock, claimed_or_ending);
  stats.room_seconds += steady_seconds() - began;
  stats.clock_reads += 2;
}

void Loader::Impl::work(ReadQueue& reads, int number) {
  Worker w{reads, number};
  std::unique_lock lock(mutex);
  for (;;) {
    Unit unit;
    if (w.idle())
      wait_for_free_slot(lock, unit);
    else if (w.can_submit())
      unit = claim();
    if (ending) return;
    advance(w, unit, lock);
  }
}

void Loader::Impl::fill_inline(std::unique_lock<std::mutex>& lock) {
  if (!inline_worker) inline_worker.reset(new Worker{*reads.front()});
  while (!(head < planned && slot(head).filled)) {
    const Unit unit = inline_worker->can_submit() ? claim() : Unit{};
    if (unit.slot || !inline_worker->idle()) advance(*inline_worker, unit, lock);
  }
}

}  // namespace millrace
