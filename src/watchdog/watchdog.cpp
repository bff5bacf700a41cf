#include "millrace/watchdog/watchdog.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>

#include "millrace/base/clock.hpp"
#include "millrace/system/first_report.hpp"
#include "millrace/system/signals.hpp"
#include "watchdog/counted_time.hpp"
#include "watchdog/end_run.hpp"
#include "watchdog/own_position.hpp"
#include "watchdog/watched_ranks.hpp"

namespace millrace::watchdog {
namespace {

using namespace std::chrono_literals;

constexpr auto interval = 250ms;
constexpr double longest_tick = 0.5;  // seconds: what a pause of the watchdog counts as

struct State {
  OwnPosition own;
  std::atomic<double> timeout;
  std::mutex mutex;  // guards the members below
  WatchedRanks ranks;
  double found_for = 0;  // seconds in which verdict() has had a result
  int continued_before = 0;
  std::filesystem::path folder;
  std::function<void()> abort;

  explicit State(double t) : timeout(t) {}
};

State* state = nullptr;  // never destroyed: the thread runs until the process ends

double still_runs() { return std::clamp(state->timeout / 3, 0.75, 2.); }

// The functions below need the lock.

// Whether no host before this one can report.
bool is_first_host(const Verdict& v, const std::vector<Position>& all) {
  for (const Position& p : all)
    if (p.node < state->own.shared.at->node && p.silent < still_runs() &&
        std::none_of(v.blamed.begin(), v.blamed.end(), [&](const Position& b) { return b.rank == p.rank; }))
      return false;
  return true;
}

// How long to wait for the report of another host, in seconds.
double head_start(const Verdict& v, const std::vector<Position>& all) {
  if (state->ranks.hosts_known) return is_first_host(v, all) ? 0 : state->own.shared.at->rank > 1 ? 3 : 1.5;
  // The hosts do not hear of each other. The one that knows which rank is stopped comes first, even if it started
  // later. Then they report in turn; the hosts before this one are about as large.
  const double turn = std::min(std::ceil(double(all.front().rank) / double(all.size())), 3.);
  return v.cause == Cause::missing ? std::clamp(state->timeout / 60, 1.25, 10.) + turn / 2 : turn / 3;
}

// The stopped ranks of this host.
std::vector<int> to_kill(const Verdict& v) {
  std::vector<int> out;
  for (const Position& p : v.blamed)
    if (p.node == state->own.shared.at->node && p.silent >= still_runs() && p.pid > 0 && p.pid != ::getpid())
      out.push_back(p.pid);
  return out;
}

void tick(double passed) {
  state->own.tick(passed);
  const std::lock_guard lock(state->mutex);
  state->ranks.search_peers(passed);
  state->ranks.observe(passed);
  if (state->ranks.another_ends_run()) {
    std::this_thread::sleep_for(longest_end + 500ms);
    end_silently({});
  }
  const auto found = state->ranks.leads(still_runs()) ? state->ranks.verdict(state->timeout) : std::nullopt;
  if (!found) {
    state->found_for = 0;
    state->continued_before = continuations();
    return;
  }
  const auto all = state->ranks.known();
  // When another host has reported, mpirun sends SIGCONT to all ranks at once, and SIGKILL two seconds later.
  const double for_kill = continuations() == state->continued_before ? 0 : 3;
  state->found_for += passed;
  if (state->found_for - passed < head_start(*found, all) + for_kill) return;
  if (!claim_report_of_host(Reporter::watchdog)) {  // a rank is failing
    std::this_thread::sleep_for(1500ms);
    end_silently(to_kill(*found));
  }
  state->own.shared.at->ends_run = true;
  end_run(*found, all, to_kill(*found), state->folder, state->abort);
}

void run() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (TickClock clock(longest_tick, steady_seconds());;) {
    std::this_thread::sleep_for(interval);
    if (state->own.shared.at->left) return;
    tick(clock.tick(steady_seconds()));
  }
}

}  // namespace

void start(double timeout) {
  auto made = std::make_unique<State>(timeout);
  if (!made->own.shared.at) return;
  state = made.release();
  own_position = &state->own;
  try {
    std::thread(run).detach();
  } catch (const std::system_error&) {  // no thread is free (ulimit -u)
    own_position = nullptr;
    state = nullptr;
  }
}

void stop() {
  if (state) state->own.shared.at->left = true;
}

bool running() { return state != nullptr; }

void set_timeout(double seconds) {
  if (state) state->timeout = seconds;
}

double timeout() { return state ? state->timeout.load() : 0; }

void set_folder(const std::filesystem::path& folder) {
  if (!state) return;
  const std::lock_guard lock(state->mutex);
  state->folder = folder;
}

void set_abort(std::function<void()> abort) {
  if (!state) return;
  const std::lock_guard lock(state->mutex);
  state->abort = std::move(abort);
}

bool claim_end() {
  if (!state) return claim_report_of_host(Reporter::collectives);
  const std::lock_guard lock(state->mutex);
  if (state->ranks.another_ends_run() || !claim_report_of_host(Reporter::collectives)) return false;
  state->own.shared.at->ends_run = true;
  return true;
}

void set_job(const std::vector<Peer>& all) {
  if (!state) return;
  const std::lock_guard lock(state->mutex);
  state->ranks.job.clear();
  for (const Peer& peer : all) state->ranks.job.push_back(unheard(peer));
}

bool set_peers(const std::vector<Peer>& of_this_host) {
  if (!state) return false;
  std::vector<WatchedPeer> peers;
  for (const Peer& peer : of_this_host) {
    WatchedPeer one{open_position(peer.pid, peer.file), peer.rank};
    if (peer.pid == ::getpid()) one.position = state->own.shared;
    if (one.position.at) peers.push_back(std::move(one));
  }
  const bool all = peers.size() == of_this_host.size();
  const std::lock_guard lock(state->mutex);
  state->ranks.peers = std::move(peers);
  state->ranks.peers_known = true;
  return all;
}

Position unheard(const Peer& peer) {
  Position out;
  out.rank = peer.rank;
  out.node = peer.node;
  out.pid = peer.pid;
  peer.host.copy(out.host, sizeof out.host - 1);
  return out;
}

std::vector<Position> positions_of_host() {
  if (!state) return {};
  const std::lock_guard lock(state->mutex);
  return state->ranks.of_host();
}

std::vector<int> stopped_ranks_of_host() {
  if (!state) return {};
  std::vector<int> out;
  for (const Position& p : positions_of_host())
    if (p.silent >= still_runs()) out.push_back(p.rank);
  return out;
}

bool leads_host() {
  if (!state) return false;
  const std::lock_guard lock(state->mutex);
  return state->ranks.leads(still_runs());
}

void expect_news(const std::vector<Position>& of_ranks, bool all) {
  if (!state) return;
  const std::lock_guard lock(state->mutex);
  state->ranks.hosts_known = true;
  state->ranks.sees_all = all;
  state->ranks.remote.clear();
  for (const Position& p : of_ranks) state->ranks.remote[p.node].positions.push_back(p);
}

void expect_no_news() {
  if (!state) return;
  const std::lock_guard lock(state->mutex);
  state->ranks.hosts_known = false;
  state->ranks.sees_all = true;
  state->ranks.remote.clear();
}

void hear_from(const std::vector<Position>& of_host) {
  if (!state || of_host.empty()) return;
  const std::lock_guard lock(state->mutex);
  const auto host = state->ranks.remote.find(of_host.front().node);
  if (host != state->ranks.remote.end()) host->second = {of_host, 0};
}

}  // namespace millrace::watchdog
