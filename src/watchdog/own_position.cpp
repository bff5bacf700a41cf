#include "watchdog/own_position.hpp"

#include <fmt/core.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "millrace/base/clock.hpp"
#include "millrace/system/launcher.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace::watchdog {

std::atomic<OwnPosition*> own_position = nullptr;

namespace {

thread_local bool is_main = false;
thread_local FileSlot* own_slot = nullptr;
thread_local Part background_part = Part::setup;

std::string stop_at;  // for tests: the part, the wait, or "PART, WAIT" at whose begin this process stops itself

// MILLRACE_TEST_STOP_AT is "RANK:PLACE".
std::string stop_of_this_rank() {
  const char* const where = std::getenv("MILLRACE_TEST_STOP_AT");
  const std::string mine = std::to_string(launcher_rank()) + ":";
  return where && std::string(where).starts_with(mine) ? where + mine.size() : "";
}

void stop_for_test(const std::string& place, const std::string& exact = "") {
  if (stop_at == place || stop_at == exact) ::kill(::getpid(), SIGSTOP);
}

OwnPosition* of_main() { return is_main ? own_position.load(std::memory_order_relaxed) : nullptr; }

}  // namespace

OwnPosition::OwnPosition() : shared(make_position()) {
  is_main = true;
  stop_at = stop_of_this_rank();
  has_main_clock = ::pthread_getcpuclockid(::pthread_self(), &main_clock) == 0;
  if (!shared.at) return;
  shared.at->rank = launcher_rank();
  ::gethostname(shared.at->host, sizeof shared.at->host - 1);
}

void OwnPosition::tick(double passed) {
  SharedPosition& p = *shared.at;
  timespec t{};
  if (has_main_clock) ::clock_gettime(main_clock, &t);
  const std::uint64_t beats = p.beats;
  p.quiet = float(meter.tick(passed, beats, double(t.tv_sec) + 1e-9 * double(t.tv_nsec), !for_ranks(p.wait)));
  p.quiet_beats = beats;
  double slowest = 0;
  for (FileSlot& slot : slots) {
    const double quiet = slot.meter.tick(passed, slot.beats, 0, false);
    if (!slot.used || quiet <= slowest) continue;
    slowest = quiet;
    p.file_part = slot.part.load();
  }
  p.file_quiet = float(slowest);
  p.last_tick = steady_seconds();
  ++p.ticks;
}

PartScope::PartScope(Part part) : before_(of_main() ? of_main()->shared.at->part.load() : background_part) {
  background_part = part;
  if (OwnPosition* own = of_main()) {
    beat();
    own->shared.at->part = part;
    if (!stop_at.empty()) stop_for_test(name_of(part));
  }
}

PartScope::~PartScope() {
  background_part = before_;
  if (OwnPosition* own = of_main()) {
    beat();
    own->shared.at->part = before_;
  }
}

WaitScope::WaitScope(Wait wait) {
  OwnPosition* const own = own_position.load(std::memory_order_relaxed);
  if (!own) return;
  if (is_main) {
    beat();
    SharedPosition& p = *own->shared.at;
    before_ = p.wait.exchange(wait);
    // Ranks may take part in a different number of HDF5's calls.
    if (for_ranks(wait) && wait != Wait::parallel_hdf5) ++p.waits;
    if (!stop_at.empty()) stop_for_test(name_of(wait), fmt::format("{}, {}", name_of(p.part), name_of(wait)));
  } else if (wait == Wait::file && !own_slot) {
    for (FileSlot& slot : own->slots)
      if (!slot.used.exchange(true)) {
        own_slot = &slot;
        slot.part = background_part;
        slot_ = true;
        break;
      }
    beat();
  }
}

WaitScope::~WaitScope() {
  OwnPosition* const own = own_position.load(std::memory_order_relaxed);
  if (!own) return;
  beat();
  if (is_main) own->shared.at->wait = before_;
  if (!slot_) return;
  own_slot->used = false;
  own_slot = nullptr;
}

void beat() {
  if (OwnPosition* own = of_main()) own->shared.at->beats.fetch_add(1, std::memory_order_relaxed);
  if (own_slot) own_slot->beats.fetch_add(1, std::memory_order_relaxed);
}

void file_progress() {
  OwnPosition* const own = own_position.load(std::memory_order_relaxed);
  if (own && own->shared.at->wait == Wait::file) own->shared.at->beats.fetch_add(1, std::memory_order_relaxed);
}

void step(std::int64_t done) {
  if (OwnPosition* own = of_main()) {
    own->shared.at->step_plus_1 = done + 1;
    beat();
  }
}

Peer self(int rank, int node, const std::string& host) {
  OwnPosition* const own = own_position;
  Peer out{rank, node, ::getpid(), -1, host};
  if (!own) return out;
  SharedPosition& p = *own->shared.at;
  p.rank = rank;
  p.node = node;
  if (host != p.host) host.copy(p.host, sizeof p.host - 1);
  out.file = own->shared.file;
  return out;
}

}  // namespace millrace::watchdog
