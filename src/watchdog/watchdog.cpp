#include "millrace/watchdog/watchdog.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "millrace/base/clock.hpp"
#include "millrace/system/first_report.hpp"
#include "watchdog/counted_time.hpp"
#include "watchdog/end_run.hpp"
#include "watchdog/judge.hpp"
#include "watchdog/own_position.hpp"

namespace millrace::watchdog {
namespace {

using namespace std::chrono_literals;

constexpr auto interval = 250ms;
constexpr double longest_tick = 0.5;  // seconds: what a pause of the watchdog counts as
constexpr auto head_start = 1500ms;   // the first host reports alone, unless it takes longer

// A rank of this host, as this process sees it.
struct WatchedPeer {
  MappedPosition position;
  int rank = 0;
  std::uint64_t ticks = 0;
  double silent = 0;
};

// News of another host.
struct RemoteHost {
  std::vector<Position> positions;
  double age = 0;
};

struct State {
  OwnPosition own;
  std::atomic<double> timeout;
  std::mutex mutex;  // guards the members below
  std::vector<WatchedPeer> peers;
  bool peers_known = false;          // by MPI; before, they are looked for
  double next_search = 0.5;          // in seconds of quiet
  std::map<int, RemoteHost> remote;  // by node
  bool hosts_known = false;          // by MPI
  bool sees_all = true;              // news of all hosts is expected
  std::filesystem::path folder;
  std::function<void()> abort;

  explicit State(double t) : timeout(t) {}
};

State* state = nullptr;  // never destroyed: the thread runs until the process ends

// A rank whose watchdog has been silent for less time leads its host.
double still_runs() { return std::clamp(state->timeout / 3, 0.75, 2.); }

// The functions below need the lock.

Position view_of(const WatchedPeer& peer) {
  Position out;
  if (peer.position.at) {
    out = copy_of(*peer.position.at, peer.position.pid);
  } else {
    ::gethostname(out.host, sizeof out.host - 1);
    out.pid = peer.position.pid;
  }
  out.rank = peer.rank;
  out.silent = peer.silent;
  return out;
}

std::vector<Position> near_positions() {
  if (state->peers.empty()) return {copy_of(*state->own.shared.at, ::getpid())};
  std::vector<Position> out;
  for (const WatchedPeer& peer : state->peers) out.push_back(view_of(peer));
  return out;
}

std::vector<Position> known_positions() {
  auto out = near_positions();
  for (const auto& [node, host] : state->remote)
    for (Position p : host.positions) {
      p.silent += host.age;
      if (for_ranks(p.wait)) p.quiet += host.age;
      out.push_back(p);
    }
  std::sort(out.begin(), out.end(), [](const Position& a, const Position& b) { return a.rank < b.rank; });
  return out;
}

bool leads() {
  for (const WatchedPeer& peer : state->peers) {
    if (peer.position.pid == ::getpid()) return true;
    if (peer.position.at && peer.silent < still_runs()) return false;
  }
  return true;
}

bool another_rank_ends_run() {
  return std::any_of(state->peers.begin(), state->peers.end(), [](const WatchedPeer& peer) {
    return peer.position.at && peer.position.pid != ::getpid() && peer.position.at->ends_run;
  });
}

// Looks for the ranks of this host while MPI starts.
void search_peers(double passed) {
  const double quiet = state->own.shared.at->quiet;
  if (state->peers_known || !for_ranks(state->own.shared.at->wait) || quiet < state->next_search) return;
  state->next_search = quiet + std::min(30., std::max(0.5, quiet));
  for (JobProcess& one : find_job()) {
    const auto known =
        std::find_if(state->peers.begin(), state->peers.end(), [&](auto& p) { return p.rank == one.rank; });
    if (known == state->peers.end()) {
      state->peers.push_back({std::move(one.position), one.rank, 0, passed});
    } else if (!known->position.at) {
      known->position = std::move(one.position);
    }
  }
  std::sort(state->peers.begin(), state->peers.end(), [](auto& a, auto& b) { return a.rank < b.rank; });
  state->peers_known =
      std::size_t(job_ranks_of_host()) == state->peers.size() &&
      std::all_of(state->peers.begin(), state->peers.end(), [](auto& p) { return p.position.at != nullptr; });
}

void observe(double passed) {
  for (WatchedPeer& peer : state->peers) {
    const std::uint64_t ticks = peer.position.at ? peer.position.at->ticks.load() : 0;
    peer.silent = ticks != peer.ticks || (peer.position.at && peer.position.at->left) ? 0 : peer.silent + passed;
    peer.ticks = ticks;
  }
  for (auto& [node, host] : state->remote) host.age += passed;
}

std::optional<Verdict> verdict() {
  auto found = judge(known_positions(), state->timeout);
  if (found && !state->sees_all && (found->cause == Cause::behind || found->cause == Cause::unknown))
    return std::nullopt;
  return found;
}

// Whether no host before this one can report.
bool is_first_host(const Verdict& v, const std::vector<Position>& all) {
  if (!state->hosts_known) return all.front().rank == 0;  // the hosts are not known yet
  for (const Position& p : all)
    if (p.node < state->own.shared.at->node && p.silent < still_runs() &&
        std::none_of(v.blamed.begin(), v.blamed.end(), [&](const Position& b) { return b.rank == p.rank; }))
      return false;
  return true;
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
  search_peers(passed);
  observe(passed);
  if (another_rank_ends_run()) {
    std::this_thread::sleep_for(head_start + 2s);
    end_silently({});
  }
  if (!leads()) return;
  const auto found = verdict();
  if (!found) return;
  if (!claim_report_of_host(Reporter::watchdog)) {  // a rank is failing
    std::this_thread::sleep_for(head_start);
    end_silently(to_kill(*found));
  }
  state->own.shared.at->ends_run = true;
  const auto all = known_positions();
  // Hosts that do not hear of each other should not all report: mpirun takes a second to end them.
  if (!is_first_host(*found, all)) wait_for_report(state->own.shared.at->rank > 1 ? 2 * head_start : head_start);
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
  state->peers = std::move(peers);
  state->peers_known = true;
  return all;
}

std::vector<Position> positions_of_host() {
  if (!state) return {};
  const std::lock_guard lock(state->mutex);
  return near_positions();
}

bool leads_host() {
  if (!state) return false;
  const std::lock_guard lock(state->mutex);
  return leads();
}

void expect_news(const std::vector<Position>& of_ranks, bool all) {
  if (!state) return;
  const std::lock_guard lock(state->mutex);
  state->hosts_known = true;
  state->sees_all = all;
  state->remote.clear();
  for (const Position& p : of_ranks) state->remote[p.node].positions.push_back(p);
}

void expect_no_news() {
  if (!state) return;
  const std::lock_guard lock(state->mutex);
  state->hosts_known = false;
  state->sees_all = true;
  state->remote.clear();
}

void hear_from(const std::vector<Position>& of_host) {
  if (!state || of_host.empty()) return;
  const std::lock_guard lock(state->mutex);
  const auto host = state->remote.find(of_host.front().node);
  if (host != state->remote.end()) host->second = {of_host, 0};
}

}  // namespace millrace::watchdog
