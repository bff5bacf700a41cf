// Ranks send their requests to rank 0; rank 0 sends every rank the numbers of the next round. Messages are polled with
// pauses, because a blocking MPI call would keep a core busy.
#include "millrace/io/collective_schedule.hpp"

#include <chrono>
#include <condition_variable>
#include <set>

#include "io/file.hpp"

namespace millrace::io {
namespace {

using Clock = std::chrono::steady_clock;
using Numbers = std::vector<std::int64_t>;

constexpr auto max_wait_for_others = std::chrono::milliseconds(2);
// Polling intervals: the short one applies for a while after a message.
constexpr auto short_poll = std::chrono::microseconds(50), long_poll = std::chrono::microseconds(1000);
constexpr auto short_poll_time = std::chrono::milliseconds(20);
enum Tag { request_tag = 1, leave_tag, round_tag, end_tag };

std::mutex& collective_mutex() {
  static std::mutex mutex;
  return mutex;
}

void check(int result, const char* call) {
  if (result != MPI_SUCCESS) fail(Exit::comm, "ranks that read together lost contact ({} failed)", call);
}

}  // namespace

// Rank 0 takes the lock first. The other ranks then wait at most for collective calls that all ranks have begun.
CollectiveLock::CollectiveLock(World& world) {
  if (!world.mpi_comm()) return;
  if (world.rank() == 0) lock_ = std::unique_lock(collective_mutex());
  world.barrier();
  if (world.rank() != 0) lock_ = std::unique_lock(collective_mutex());
}

struct CollectiveSchedule::Impl {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
  // State of this rank, shared by all threads.
  std::mutex mutex;
  std::condition_variable wake;
  std::optional<Numbers> mine;  // the request, until a round contains it
  bool leaving = false;
  // State of the thread that calls next().
  Numbers sent;  // the request that is being sent to rank 0
  MPI_Request request_send = MPI_REQUEST_NULL, leave_send = MPI_REQUEST_NULL;
  bool request_sent = false, leave_sent = false;
  Clock::time_point last_message = Clock::now();
  // State of rank 0, by rank.
  std::vector<std::optional<Numbers>> requests;
  std::vector<bool> gone;
  std::optional<Clock::time_point> first_request;  // of the round that is being collected

  void nap() {
    const auto now = Clock::now();
    std::unique_lock lock(mutex);
    wake.wait_for(lock, now - last_message < short_poll_time ? short_poll : long_poll);
  }

  // A message that has arrived, from any rank.
  std::optional<std::pair<MPI_Status, Numbers>> receive() {
    const std::lock_guard lock(mpi_call_mutex());
    int arrived = 0, count = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &arrived, &status), "MPI_Iprobe");
    if (!arrived) return std::nullopt;
    MPI_Get_count(&status, MPI_INT64_T, &count);
    Numbers numbers(std::size_t(count), 0);
    check(MPI_Recv(numbers.data(), count, MPI_INT64_T, status.MPI_SOURCE, status.MPI_TAG, comm, &status), "MPI_Recv");
    last_message = Clock::now();
    return std::pair{status, std::move(numbers)};
  }

  void send_to_rank_0() {
    const std::lock_guard lock(mutex);
    if (mine && !request_sent) {
      sent = *mine;
      request_sent = true;
      check(MPI_Isend(sent.data(), int(sent.size()), MPI_INT64_T, 0, request_tag, comm, &request_send), "MPI_Isend");
    } else if (leaving && !mine && !leave_sent) {
      leave_sent = true;
      check(MPI_Isend(nullptr, 0, MPI_INT64_T, 0, leave_tag, comm, &leave_send), "MPI_Isend");
    }
  }

  std::optional<Round> follow() {
    for (;; nap()) {
      send_to_rank_0();
      auto message = receive();
      if (!message) continue;
      if (message->first.MPI_TAG == end_tag) {
        MPI_Wait(&leave_send, MPI_STATUS_IGNORE);
        return std::nullopt;
      }
      Round round;
      Numbers& numbers = message->second;  // the first is 1 if they contain this rank's request
      round.mine = numbers.front() != 0;
      round.numbers.assign(numbers.begin() + 1, numbers.end());
      round.turn.lock_ = std::unique_lock(collective_mutex());
      if (round.mine) finish_request();
      return round;
    }
  }

  // A round contains this rank's request, so rank 0 has received it.
  void finish_request() {
    MPI_Wait(&request_send, MPI_STATUS_IGNORE);
    const std::lock_guard lock(mutex);
    mine.reset();
    request_sent = false;
  }

  void collect_requests() {
    {
      const std::lock_guard lock(mutex);
      if (mine && !requests[0]) requests[0] = *mine;
      gone[0] = leaving && !mine;
    }
    while (auto message = receive()) {
      const auto from = std::size_t(message->first.MPI_SOURCE);
      if (message->first.MPI_TAG == leave_tag)
        gone[from] = true;
      else
        requests[from] = std::move(message->second);
    }
  }

  bool all_gone() const {
    for (const bool g : gone)
      if (!g) return false;
    return true;
  }

  // Whether a round begins: every rank has a request or has left, or one has waited long enough.
  bool round_is_due() {
    std::size_t waiting = 0, absent = 0;
    for (std::size_t r = 0; r < requests.size(); ++r) {
      waiting += bool(requests[r]);
      absent += gone[r];
    }
    if (waiting == 0) return false;
    const auto now = last_message = Clock::now();
    if (!first_request) first_request = now;
    return waiting + absent == requests.size() || now - *first_request > max_wait_for_others;
  }

  void send_all(Tag tag, const std::vector<Numbers>& each) {
    std::vector<MPI_Request> sends(each.size(), MPI_REQUEST_NULL);
    for (std::size_t r = 1; r < each.size(); ++r)
      check(MPI_Isend(each[r].data(), int(each[r].size()), MPI_INT64_T, int(r), tag, comm, &sends[r]), "MPI_Isend");
    check(MPI_Waitall(int(sends.size()), sends.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  }

  std::optional<Round> lead() {
    for (;; nap()) {
      collect_requests();
      if (all_gone()) {
        send_all(end_tag, std::vector<Numbers>(requests.size()));
        return std::nullopt;
      }
      if (!round_is_due()) continue;
      Round round;
      round.turn.lock_ = std::unique_lock(collective_mutex());
      collect_requests();  // more may have arrived while this rank waited for the lock
      std::set<std::int64_t> all;
      for (const auto& request : requests)
        if (request) all.insert(request->begin(), request->end());
      round.numbers.assign(all.begin(), all.end());
      std::vector<Numbers> each(requests.size());
      for (std::size_t r = 0; r < requests.size(); ++r) {
        each[r] = {std::int64_t(bool(requests[r]))};
        each[r].insert(each[r].end(), round.numbers.begin(), round.numbers.end());
      }
      round.mine = bool(requests[0]);
      if (round.mine) finish_request();
      requests.assign(requests.size(), std::nullopt);
      first_request.reset();
      send_all(round_tag, each);
      return round;
    }
  }
};

CollectiveSchedule::CollectiveSchedule(World& world) : impl_(std::make_unique<Impl>()) {
  const MPI_Comm comm = communicator_of(world);
  MR_CHECK(comm != MPI_COMM_NULL);
  check(MPI_Comm_dup(comm, &impl_->comm), "MPI_Comm_dup");
  impl_->rank = world.rank();
  impl_->size = world.size();
  impl_->requests.resize(std::size_t(impl_->size));
  impl_->gone.resize(std::size_t(impl_->size));
}

CollectiveSchedule::~CollectiveSchedule() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&impl_->comm);
}

void CollectiveSchedule::request(std::vector<std::int64_t> numbers) {
  {
    const std::lock_guard lock(impl_->mutex);
    MR_CHECK(!impl_->mine && !numbers.empty());
    impl_->mine = std::move(numbers);
  }
  impl_->wake.notify_all();
}

void CollectiveSchedule::leave() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->leaving = true;
  }
  impl_->wake.notify_all();
}

std::optional<CollectiveSchedule::Round> CollectiveSchedule::next() {
  return impl_->rank == 0 ? impl_->lead() : impl_->follow();
}

}  // namespace millrace::io
