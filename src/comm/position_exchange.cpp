#include "millrace/comm/position_exchange.hpp"

#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "millrace/base/clock.hpp"
#include "millrace/comm/mpi_check.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

using watchdog::Peer;
using watchdog::Position;

// All ranks, by host. ranks_are_hosts: each rank counts as a host.
std::map<int, std::vector<Peer>> gather_peers(World& world, bool ranks_are_hosts) {
  const Peer mine = watchdog::self(world.rank(), ranks_are_hosts ? world.rank() : world.node(), world.host());
  std::map<int, std::vector<Peer>> out;
  for (const std::string& text :
       world.gather(fmt::format("{} {} {} {} {}", mine.rank, mine.node, mine.pid, mine.file, mine.host))) {
    Peer peer;
    std::istringstream(text) >> peer.rank >> peer.node >> peer.pid >> peer.file >> peer.host;
    out[peer.node].push_back(peer);
  }
  return out;
}

}  // namespace

struct PositionExchange::Impl {
  enum Tag { news = 1, reply = 2 };
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    int to = 0;
    std::vector<Position> positions;
  };

  MPI_Comm comm = MPI_COMM_NULL;
  const int rank;
  std::vector<int> judges;  // the ranks that hear from all hosts
  std::list<Message> sent;
  std::mutex mutex;
  std::condition_variable wake;
  bool ending = false;
  std::thread thread;

  Impl(World& world, const std::vector<int>& first_ranks) : rank(world.rank()) {
    MR_MPI(MPI_Comm_dup(*static_cast<const MPI_Comm*>(world.mpi_comm()), &comm));
    MR_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    judges = {first_ranks.begin(), first_ranks.begin() + std::min<std::ptrdiff_t>(2, std::ssize(first_ranks))};
    thread = std::thread([this] { run(); });
  }

  void forget_sent() {
    sent.remove_if([](Message& m) {
      int done = 0;
      return MPI_Test(&m.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
    });
  }

  // Sends nothing to a rank that has not taken the message before.
  void send(int to, Tag tag) {
    if (to == rank || std::any_of(sent.begin(), sent.end(), [&](const Message& m) { return m.to == to; })) return;
    Message& m = sent.emplace_back();
    m.to = to;
    m.positions = watchdog::positions_of_host();
    MR_MPI(
        MPI_Isend(m.positions.data(), int(m.positions.size() * sizeof(Position)), MPI_BYTE, to, tag, comm, &m.request));
  }

  bool receive() {
    int there = 0, bytes = 0;
    MPI_Status status;
    MR_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &there, &status));
    if (!there) return false;
    MR_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
    std::vector<Position> positions(std::size_t(bytes) / sizeof(Position));
    MR_MPI(MPI_Recv(positions.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, MPI_STATUS_IGNORE));
    watchdog::hear_from(positions);
    if (status.MPI_TAG == news) send(status.MPI_SOURCE, reply);
    return true;
  }

  void exchange(double& next) {
    const std::lock_guard lock(mpi_call_mutex());
    forget_sent();
    while (receive()) continue;
    if (steady_seconds() < next || !watchdog::leads_host()) return;
    for (const int judge : judges) send(judge, news);
    next = steady_seconds() + std::clamp(watchdog::timeout() / 8, 0.1, 1.);
  }

  void run() {
    double next = 0;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, std::chrono::milliseconds(100), [this] { return ending; })) {
      lock.unlock();
      try {
        exchange(next);
      } catch (const Error&) {  // MPI has failed: the other hosts notice the silence
        return;
      }
      lock.lock();
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    wake.notify_all();
    thread.join();
    watchdog::expect_no_news();
    forget_sent();
    if (sent.empty())
      MPI_Comm_free(&comm);
    else
      new std::list(std::move(sent));  // MPI may still read these buffers, so they are leaked
  }
};

PositionExchange::PositionExchange(World& world) {
  if (!world.mpi_comm() || !watchdog::running()) return;
  int node = world.node();
  auto hosts = gather_peers(world, false);
  std::int64_t mapped = watchdog::set_peers(hosts[node]);
  world.all_reduce(std::span<std::int64_t>(&mapped, 1), World::Reduce::min);
  if (!mapped) {  // for example, each rank is in a container of its own
    node = world.rank();
    hosts = gather_peers(world, true);
    watchdog::set_peers(hosts[node]);
  }
  std::vector<Peer> all;
  for (const auto& [number, peers] : hosts) all.insert(all.end(), peers.begin(), peers.end());
  watchdog::set_job(all);
  std::vector<int> first_ranks;
  std::vector<Position> expected;
  const auto judge_hosts = std::next(hosts.begin(), std::min<std::ptrdiff_t>(2, std::ssize(hosts)));
  const bool judges = judge_hosts == hosts.end() || node < judge_hosts->first;
  for (const auto& [number, peers] : hosts) {
    first_ranks.push_back(peers.front().rank);
    const bool of_judge = judge_hosts == hosts.end() || number < judge_hosts->first;
    for (const Peer& peer : peers)
      if (number != node && (judges || of_judge)) expected.push_back(watchdog::unheard(peer));
  }
  watchdog::expect_news(expected, judges);
  if (hosts.size() > 1) impl_ = std::make_unique<Impl>(world, first_ranks);
}

PositionExchange::~PositionExchange() = default;

}  // namespace millrace
