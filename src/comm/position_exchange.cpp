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

// The ranks of all hosts. Returns false if a rank of this host cannot be mapped.
bool connect_host(World& world, bool ranks_are_hosts, std::vector<int>& first_ranks) {
  const int node = ranks_are_hosts ? world.rank() : world.node();
  const Peer mine = watchdog::self(world.rank(), node, world.host());
  std::map<int, int> first_of_node;
  std::vector<Peer> near;
  for (const std::string& text :
       world.gather(fmt::format("{} {} {} {} {}", mine.rank, mine.node, mine.pid, mine.file, mine.host))) {
    Peer peer;
    std::istringstream(text) >> peer.rank >> peer.node >> peer.pid >> peer.file >> peer.host;
    first_of_node.try_emplace(peer.node, peer.rank);
    if (peer.node == node) near.push_back(peer);
  }
  first_ranks.clear();
  for (const auto& [number, rank] : first_of_node) first_ranks.push_back(rank);
  return watchdog::set_peers(near);
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
    forget_sent();
    if (sent.empty())
      MPI_Comm_free(&comm);
    else
      new std::list(std::move(sent));  // MPI may still read these buffers, so they are leaked
  }
};

PositionExchange::PositionExchange(World& world) {
  if (!world.mpi_comm() || !watchdog::running()) return;
  std::vector<int> first_ranks;
  std::int64_t mapped = connect_host(world, false, first_ranks);
  world.all_reduce(std::span<std::int64_t>(&mapped, 1), World::Reduce::min);
  if (!mapped) connect_host(world, true, first_ranks);
  watchdog::set_hosts(int(first_ranks.size()));
  if (first_ranks.size() > 1) impl_ = std::make_unique<Impl>(world, first_ranks);
}

PositionExchange::~PositionExchange() = default;

}  // namespace millrace
