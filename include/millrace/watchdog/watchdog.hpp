// The watchdog: a deadline on every wait of a run.
//
// Each rank has a thread that wakes up four times a second, whatever the main thread is doing. It publishes the rank's
// position in memory that the other ranks of the host map, so the position of a stopped rank can still be read. The
// lowest running rank of a host judges the positions of its host, and one host those of all hosts
// (comm/position_exchange). It ends the run if
//  - a rank was stopped or died: its watchdog has not run for the timeout;
//  - a rank waits for a file system, without progress, for the timeout;
//  - ranks wait for a rank that makes no progress for the timeout, or for each other.
// A rank that computes is not late: CPU time of the main thread is progress. Only if other ranks wait four timeouts for
// it in training, it is taken to be in an endless loop. Time in which the
// watchdog itself did not run is not counted, so a pause of all ranks is no reason to end the run.
//
// The run ends with exit code 5, one line that names the rank, and a record of all positions in the run folder.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "millrace/watchdog/position.hpp"

namespace millrace::watchdog {

// Starts the watchdog of this process. The calling thread is the main thread of the rank. Without a call, every other
// function does nothing. timeout: seconds.
void start(double timeout);
void stop();  // this rank leaves the run: it is no longer judged, and judges no others
bool running();
void set_timeout(double seconds);
double timeout();
void set_folder(const std::filesystem::path&);  // where the flight record goes
// How to end the other ranks; called by a thread of its own. Empty: not possible now.
void set_abort(std::function<void()>);

// For a thread that finds by itself that the run cannot go on. True: it shall report why, and end the run. False:
// another part of this process or another rank of this host does so; it stays known after the process of that rank has
// ended.
bool claim_end();

// A scope: the part of the run in which this thread is.
class PartScope {
 public:
  explicit PartScope(Part);
  ~PartScope();
  PartScope(const PartScope&) = delete;

 private:
  const Part before_;
};

// A scope: this thread waits. Waits for other ranks count in the main thread only.
class WaitScope {
 public:
  explicit WaitScope(Wait);
  ~WaitScope();
  WaitScope(const WaitScope&) = delete;

 private:
  Wait before_ = Wait::none;
  bool slot_ = false;  // this scope took the slot of a background thread
};

void file_progress();          // a thread read something: the main thread, if it waits for a file, is not stuck
void beat();                   // this thread made progress
void step(std::int64_t done);  // this rank has finished this many steps

// The ranks of this host.
struct Peer {
  std::int32_t rank = 0, node = 0, pid = 0;
  int file = -1;  // descriptor of its position in its own process
  std::string host;
};
Peer self(int rank, int node, const std::string& host);  // also names this process for later messages
void set_job(const std::vector<Peer>& all);              // for messages about ranks of which nothing is heard
Position unheard(const Peer&);                           // before its first news
// Returns false if the position of one cannot be mapped.
bool set_peers(const std::vector<Peer>& of_this_host);

// The ranks of this host whose processes do not run: stopped or dead for some seconds.
std::vector<int> stopped_ranks_of_host();

// For the exchange between hosts.
std::vector<Position> positions_of_host();
bool leads_host();  // this is the lowest rank of its host that runs
// The ranks of the other hosts whose news is expected; `all`: no host is left out. Without all of them, nothing is
// concluded from waits. Ranks of which nothing is ever heard count as silent.
void expect_news(const std::vector<Position>& of_ranks, bool all);
void expect_no_news();                                 // the exchange ends: hosts judge alone
void hear_from(const std::vector<Position>& of_host);  // news of another host

}  // namespace millrace::watchdog
