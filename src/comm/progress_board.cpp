#include "millrace/comm/progress_board.hpp"

#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "comm/backoff.hpp"
#include "comm/shared_memory.hpp"
#include "comm/shm_capacity.hpp"
#include "millrace/comm/mpi_check.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

// Ranks that see each other's numbers. The first of them answers for all.
using Group = std::vector<int>;

bool contains(const std::vector<int>& all, int rank) { return std::find(all.begin(), all.end(), rank) != all.end(); }

// Sends questions and answers between groups, over a separate communicator. A question consists of its sequence number;
// an answer consists of this sequence number, the numbers of the group's ranks, and the ranks of the host that are
// stopped.
class QueryChannel {
 public:
  using Numbers = std::vector<std::uint64_t>;
  explicit QueryChannel(const void* comm) { MR_MPI(MPI_Comm_dup(*static_cast<const MPI_Comm*>(comm), &comm_)); }
  ~QueryChannel() {
    bool all = true;
    for (auto& [request, numbers] : sent_) {
      int done = 0;
      all = MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done && all;
    }
    if (all)
      MPI_Comm_free(&comm_);
    else
      new std::list(std::move(sent_));  // a receiver is gone. MPI may still read these buffers, so they are leaked
  }
  enum Tag { question = 1, answer = 2 };
  void send(int to, Tag tag, Numbers numbers) {
    const std::lock_guard lock(mutex_);
    sent_.remove_if([](auto& one) {
      int done = 0;
      return MPI_Test(&one.first, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
    });
    auto& [request, kept] = sent_.emplace_back(MPI_REQUEST_NULL, std::move(numbers));
    MR_MPI(MPI_Isend(kept.data(), int(kept.size()), MPI_UINT64_T, to, tag, comm_, &request));
  }
  // Receives a message if one has arrived; otherwise returns false. Only one thread may receive messages of a tag.
  bool receive(Tag tag, int& from, Numbers& numbers) {
    const std::lock_guard lock(mpi_call_mutex());
    int there = 0, count = 0;
    MPI_Status status;
    MR_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &there, &status));
    if (!there) return false;
    MR_MPI(MPI_Get_count(&status, MPI_UINT64_T, &count));
    numbers.resize(std::size_t(count));
    from = status.MPI_SOURCE;
    MR_MPI(MPI_Recv(numbers.data(), count, MPI_UINT64_T, from, tag, comm_, MPI_STATUS_IGNORE));
    return true;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::mutex mutex_;
  std::list<std::pair<MPI_Request, Numbers>> sent_;
};

class SharedBoard : public ProgressBoard {
 public:
  explicit SharedBoard(World& world) {
    if (world.mpi_comm())
      memory_ = make_mpi_memory(world, !fits_in_shared_memory(world, sizeof(RankCounters)));
    else
      memory_ = make_thread_memory(world);
    const MappedRegion region = memory_->allocate(sizeof(RankCounters));
    for (void* peer : region.peers) boards_.push_back(static_cast<RankCounters*>(peer));
    mine_ = static_cast<RankCounters*>(region.mine);
    const bool shared = memory_->shared();
    std::map<int, Group> groups;  // by their first rank
    std::map<int, int> first_of_node;
    int rank = 0, node = 0;
    for (const std::string& text : world.gather(fmt::format("{} {}", world.node(), world.host()))) {
      std::istringstream in(text);
      in >> node >> hosts_.emplace_back();
      nodes_.push_back(node);
      const int first = shared ? first_of_node.try_emplace(node, rank).first->second : rank;
      groups[first].push_back(rank++);
    }
    for (auto& [first, group] : groups) {
      const bool ours = std::find(group.begin(), group.end(), world.rank()) != group.end();
      if (ours) is_responder_ = first == world.rank();
      ours ? near_ = group : far_[first] = group;
    }
    if (!world.mpi_comm()) far_.clear();
    if (far_.empty()) return;
    channel_ = std::make_unique<QueryChannel>(world.mpi_comm());
    if (is_responder_) responder_ = std::thread([this] { answer(); });
  }
  ~SharedBoard() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    if (responder_.joinable()) responder_.join();
  }

  // If two threads post at the same time, the larger number wins.
  void post(std::uint64_t number) override {
    std::uint64_t before = mine_->posted.load(std::memory_order_relaxed);
    while (before < number && !mine_->posted.compare_exchange_weak(before, number, std::memory_order_release)) {
    }
  }

  std::vector<int> late(std::uint64_t number) const override {
    std::vector<int> out;
    for (std::size_t i = 0; i < boards_.size(); ++i)
      if (posted(i) < number) out.push_back(near_[i]);
    return out;
  }

  RankStatus query_ranks(std::uint64_t number, double timeout_seconds) override {
    const std::lock_guard lock(asking_);
    RankStatus out{watchdog::stopped_ranks_of_host(), late(number), {}};
    auto waiting = far_;
    ++questions_;
    for (const auto& [first, group] : waiting) channel_->send(first, QueryChannel::question, {questions_});
    for (Backoff backoff(timeout_seconds); !waiting.empty() && backoff.wait();) {
      int from = 0;
      QueryChannel::Numbers numbers;
      if (!channel_->receive(QueryChannel::answer, from, numbers)) continue;
      const auto group = waiting.find(from);
      if (group == waiting.end() || numbers.at(0) != questions_) continue;  // a late answer to an earlier question
      for (std::size_t i = 0; i < group->second.size(); ++i)
        if (numbers.at(i + 1) < number) out.late.push_back(group->second[i]);
      out.stopped.insert(out.stopped.end(), numbers.begin() + 1 + std::ptrdiff_t(group->second.size()), numbers.end());
      waiting.erase(group);
    }
    for (const auto& [first, group] : waiting)
      out.unresponsive.insert(out.unresponsive.end(), group.begin(), group.end());
    for (std::vector<int>* ranks : {&out.stopped, &out.late, &out.unresponsive}) {
      std::sort(ranks->begin(), ranks->end());
      ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
      if (ranks != &out.stopped) std::erase_if(*ranks, [&](int rank) { return contains(out.stopped, rank); });
    }
    return out;
  }

  bool is_first_host(const RankStatus& s) const override {
    for (int rank = 0; rank < int(nodes_.size()); ++rank)
      if (!contains(s.stopped, rank) && !contains(s.late, rank) && !contains(s.unresponsive, rank))
        return nodes_[std::size_t(rank)] == nodes_[std::size_t(near_.front())];
    return true;
  }

  std::string describe(const RankStatus& s) const override {
    std::string text;
    const auto add = [&](const char* what, const std::vector<int>& ranks) {
      if (!ranks.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", what, list(ranks));
    };
    add("stopped or dead", s.stopped);
    add("late", s.late);
    add("no answer", s.unresponsive);
    return text.empty() ? "no rank is known to be late; the network may be the cause" : text;
  }

 private:
  std::uint64_t posted(std::size_t i) const { return boards_[i]->posted.load(std::memory_order_acquire); }

  // "rank 1, 3 on node7, rank 9 on node8"; at most eight ranks, then "...".
  std::string list(const std::vector<int>& ranks) const {
    std::string text;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (i == 8) return text + ", ...";
      const std::string& host = hosts_[std::size_t(ranks[i])];
      const bool begins = i == 0 || hosts_[std::size_t(ranks[i - 1])] != host;
      const bool ends = i + 1 == ranks.size() || i == 7 || hosts_[std::size_t(ranks[i + 1])] != host;
      text += fmt::format("{}{}{}{}", i ? ", " : "", begins ? "rank " : "", ranks[i], ends ? " on " + host : "");
    }
    return text;
  }

  // The responder thread polls ten times a second, which takes hardly any CPU time.
  void answer() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(100), [this] { return ending_; })) {
      lock.unlock();
      try {
        int from = 0;
        for (QueryChannel::Numbers numbers; channel_->receive(QueryChannel::question, from, numbers);) {
          for (std::size_t i = 0; i < boards_.size(); ++i) numbers.push_back(posted(i));
          for (const int rank : watchdog::stopped_ranks_of_host()) numbers.push_back(std::uint64_t(rank));
          channel_->send(from, QueryChannel::answer, std::move(numbers));
        }
      } catch (const Error&) {  // MPI has failed; other ranks will see this host as unresponsive
        return;
      }
      lock.lock();
    }
  }

  std::unique_ptr<SharedMemory> memory_;
  std::vector<RankCounters*> boards_;  // counters of near_
  RankCounters* mine_ = nullptr;
  std::vector<std::string> hosts_;  // by rank
  std::vector<int> nodes_;          // by rank
  Group near_;                      // the group of this rank
  std::map<int, Group> far_;        // the other groups, by their first rank
  bool is_responder_ = false;
  // The sequence number of the last question. Every board starts at a different one: Open MPI delivers messages to a
  // freed communicator to the next communicator with the same id, so a late answer may reach a later board.
  std::uint64_t questions_ = std::uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
  std::unique_ptr<QueryChannel> channel_;  // null if there are no other groups
  std::mutex asking_;                      // allows one question at a time
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread responder_;
};

}  // namespace

std::unique_ptr<ProgressBoard> make_progress_board(World& world) { return std::make_unique<SharedBoard>(world); }

}  // namespace millrace
