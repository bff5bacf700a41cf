// ProgressBoard: each rank posts one number, which the other ranks can read even while its threads are blocked. It
// tells which ranks are late when a collective operation hangs. The ranks of a host read each other's numbers in shared
// memory. If there are several hosts, a thread of each host answers queries of the others.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"

namespace millrace {

class ProgressBoard {
 public:
  virtual ~ProgressBoard() = default;
  // Publishes this rank's number. A number below the last one has no effect.
  virtual void post(std::uint64_t number) = 0;
  // The ranks of this host that have posted less than `number`. May be called by any thread. If /dev/shm is too small
  // for the board, a rank sees only its own number.
  virtual std::vector<int> late(std::uint64_t number) const = 0;

  struct RankStatus {
    std::vector<int> stopped;       // their processes do not run, whatever they have posted
    std::vector<int> late;          // have posted less than the number, but are not stopped
    std::vector<int> unresponsive;  // no answer arrived from their host
  };
  // The status of all ranks. Waits at most timeout_seconds for the answers of other hosts; calls of several threads run
  // one after the other. Not collective.
  virtual RankStatus query_ranks(std::uint64_t number, double timeout_seconds) = 0;
  // "stopped or dead: rank 4 on node7; late: rank 1, 3 on node7, rank 9 on node8; no answer: rank 12 on node9", or that
  // no rank is known to be late.
  virtual std::string describe(const RankStatus&) const = 0;
  // Whether this host has the first rank that is none of these. If the ranks that wait for others are ended by the
  // first host that reports, the other hosts let that one report.
  virtual bool is_first_host(const RankStatus&) const = 0;
};

std::unique_ptr<ProgressBoard> make_progress_board(World&);  // collective

}  // namespace millrace
