// Ranks tell rank 0 what they want; rank 0 tells all of them what is read. Messages are looked for, not waited for:
// MPI's own waiting takes a core.
#include "millrace/io/collective_schedule.hpp"

#include <chrono>
#include <condition_variable>
#include <set>

#include "io/file.hpp"

namespace millrace::io {
namespace {

using Clock = std::chrono::steady_clock;
using Numbers = std::vector<std::int64_t>;

constexpr auto patience = std::chrono::milliseconds(2);
// Between two looks: soon after something happened, and later.
constexpr auto lively = std::chrono::microseconds(50), calm = std::chrono::microseconds(1000);
constexpr auto lively_for = std::chrono::milliseconds(20);
enum Tag { wanted = 1, left, begins, ends };

std::mutex& turns() {
  static std::mutex mutex;
  return mutex;
}

void check(int result, const char* call) {
  if (result != MPI_SUCCESS) fail(Exit::comm, "ranks that read together lost each other (", call, " failed)");
}

}  // namespace

// Rank 0 has its turn before others hear of it. They then wait at most for calls that all ranks are in already.
CollectiveLock::CollectiveLock(World& world) {
  if (!world.mpi_comm()) return;
  if (world.rank() == 0) lock_ = std::unique_lock(turns());
  world.barrier();
  if (world.rank() != 0) lock_ = std::unique_lock(turns());
}

struct CollectiveSchedule::Impl {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
  // Of this rank, for all threads.
  std::mutex mutex;
  std::condition_variable wake;
  std::optional<Numbers> mine;  // wanted, and no round yet
  bool leaving = false;
  // Of the thread that calls next().
  Numbers told;  // under way to rank 0
  MPI_Request telling = MPI_REQUEST_NULL, parting = MPI_REQUEST_NULL;
  bool has_told = false, has_left = false;
  Clock::time_point happened = Clock::now();
  // Of rank 0.
  std::vector<std::optional<Numbers>> offers;
  std::vector<bool> gone;
  std::optional<Clock::time_point> first_offer;

  void nap() {
    const auto now = Clock::now();
    std::unique_lock lock(mutex);
    wake.wait_for(lock, now - happened < lively_for ? lively : calm);
  }

  // A message that is there, from anyone.
  std::optional<std::pair<MPI_Status, Numbers>> receive() {
    const std::lock_guard lock(mpi_call_mutex());
    int there = 0, count = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &there, &status), "MPI_Iprobe");
    if (!there) return std::nullopt;
    MPI_Get_count(&status, MPI_INT64_T, &count);
    Numbers numbers(std::size_t(count), 0);
    check(MPI_Recv(numbers.data(), count, MPI_INT64_T, status.MPI_SOURCE, status.MPI_TAG, comm, &status), "MPI_Recv");
    happened = Clock::now();
    return std::pair{status, std::move(numbers)};
  }

  void tell_rank_0() {
    const std::lock_guard lock(mutex);
    if (mine && !has_told) {
      told = *mine, has_told = true;
      check(MPI_Isend(told.data(), int(told.size()), MPI_INT64_T, 0, wanted, comm, &telling), "MPI_Isend");
    } else if (leaving && !mine && !has_left) {
      has_left = true;
      check(MPI_Isend(nullptr, 0, MPI_INT64_T, 0, left, comm, &parting), "MPI_Isend");
    }
  }

  std::optional<Round> follow() {
    for (;; nap()) {
      tell_rank_0();
      auto message = receive();
      if (!message) continue;
      if (message->first.MPI_TAG == ends) {
        MPI_Wait(&parting, MPI_STATUS_IGNORE);
        return std::nullopt;
      }
      Round round;
      Numbers& numbers = message->second;  // the first says whether this rank's are among them
      round.mine = numbers.front() != 0;
      round.numbers.assign(numbers.begin() + 1, numbers.end());
      round.turn.lock_ = std::unique_lock(turns());
      if (round.mine) over();
      return round;
    }
  }

  // What this rank wanted is in a round, so rank 0 has heard of it.
  void over() {
    MPI_Wait(&telling, MPI_STATUS_IGNORE);
    const std::lock_guard lock(mutex);
    mine.reset(), has_told = false;
  }

  void look_for_offers() {
    {
      const std::lock_guard lock(mutex);
      if (mine && !offers[0]) offers[0] = *mine;
      gone[0] = leaving && !mine;
    }
    while (auto message = receive()) {
      const auto from = std::size_t(message->first.MPI_SOURCE);
      if (message->first.MPI_TAG == left)
        gone[from] = true;
      else
        offers[from] = std::move(message->second);
    }
  }

  bool all_gone() const {
    for (const bool g : gone)
      if (!g) return false;
    return true;
  }

  // Everyone wants something, or somebody has waited.
  bool due() {
    std::size_t offered = 0, absent = 0;
    for (std::size_t r = 0; r < offers.size(); ++r) offered += bool(offers[r]), absent += gone[r];
    if (offered == 0) return false;
    const auto now = happened = Clock::now();
    if (!first_offer) first_offer = now;
    return offered + absent == offers.size() || now - *first_offer > patience;
  }

  void send_all(Tag tag, const std::vector<Numbers>& each) {
    std::vector<MPI_Request> requests(each.size(), MPI_REQUEST_NULL);
    for (std::size_t r = 1; r < each.size(); ++r)
      check(MPI_Isend(each[r].data(), int(each[r].size()), MPI_INT64_T, int(r), tag, comm, &requests[r]), "MPI_Isend");
    check(MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  }

  std::optional<Round> lead() {
    for (;; nap()) {
      look_for_offers();
      if (all_gone()) {
        send_all(ends, std::vector<Numbers>(offers.size()));
        return std::nullopt;
      }
      if (!due()) continue;
      Round round;
      round.turn.lock_ = std::unique_lock(turns());
      look_for_offers();  // it may have been a while
      std::set<std::int64_t> all;
      for (const auto& offer : offers)
        if (offer) all.insert(offer->begin(), offer->end());
      round.numbers.assign(all.begin(), all.end());
      std::vector<Numbers> each(offers.size());
      for (std::size_t r = 0; r < offers.size(); ++r) {
        each[r] = {std::int64_t(bool(offers[r]))};
        each[r].insert(each[r].end(), round.numbers.begin(), round.numbers.end());
      }
      round.mine = bool(offers[0]);
      if (round.mine) over();
      offers.assign(offers.size(), std::nullopt), first_offer.reset();
      send_all(begins, each);
      return round;
    }
  }
};

CollectiveSchedule::CollectiveSchedule(World& world) : impl_(std::make_unique<Impl>()) {
  const MPI_Comm comm = communicator_of(world);
  MR_CHECK(comm != MPI_COMM_NULL);
  check(MPI_Comm_dup(comm, &impl_->comm), "MPI_Comm_dup");
  impl_->rank = world.rank(), impl_->size = world.size();
  impl_->offers.resize(std::size_t(impl_->size)), impl_->gone.resize(std::size_t(impl_->size));
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
