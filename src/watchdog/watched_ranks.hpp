// What this process knows about the ranks of the run. Private to the watchdog.
#pragma once
#include <map>
#include <vector>

#include "watchdog/judge.hpp"
#include "watchdog/shared_position.hpp"

namespace millrace::watchdog {

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

struct WatchedRanks {
  std::vector<WatchedPeer> peers;    // sorted by rank; empty: only this rank is known
  bool peers_known = false;          // by MPI; before, they are looked for
  double next_search = 0.5;          // in seconds of quiet
  std::map<int, RemoteHost> remote;  // by node
  bool hosts_known = false;          // by MPI: news of them is expected
  bool sees_all = true;              // news of all hosts is expected
  std::vector<Position> job;         // rank and host of all ranks, once MPI has told; the rest is empty

  void search_peers(double passed);  // looks for the ranks of this host while MPI starts
  void observe(double passed);
  std::vector<Position> of_host() const;
  std::vector<Position> known() const;  // of all hosts, as far as they are known, sorted by rank
  // This is the lowest rank of its host that runs. still_runs: seconds; a rank whose watchdog has been silent for less
  // time runs.
  bool leads(double still_runs) const;
  bool another_ends_run() const;
  // The verdict of judge(). While hosts do not hear of each other, it tells which ranks this host knows nothing about.
  std::optional<Verdict> verdict(double timeout) const;
};

}  // namespace millrace::watchdog
