// Micro-batches read by all ranks together: a thread of each rank makes HDF5's collective calls, round by round
// (io/rounds.hpp), with this rank's reads or with none. Private to the data room.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "millrace/data/read/source.hpp"
#include "millrace/io/collective_schedule.hpp"

namespace millrace {

class CollectiveReader {
 public:
  struct Request {  // empty: this rank takes part without
    std::span<const std::int64_t> ids = {};
    void *x = nullptr, *y = nullptr;
  };
  // read: of these shards, in this order; all ranks' calls are the same. Called by the thread; what it throws goes to
  // who asked, after the round.
  using Read = std::function<void(std::span<const std::int64_t> shards, const Request&)>;
  CollectiveReader(World&, const ShardIndex&, Read);  // collective; the index outlives it
  ~CollectiveReader();                                // collective
  std::unique_ptr<ReadQueue> make_read_queue();

 private:
  class WorkerQueue;
  struct PendingRequest {
    Request request;
    bool begun = false, done = false;  // its round
    std::exception_ptr failure;
  };
  void ask(PendingRequest&);
  void wait_for(PendingRequest&, bool PendingRequest::*);
  void request_next();
  void run();

  const ShardIndex& index_;
  const Read read_;
  io::CollectiveSchedule schedule_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::deque<PendingRequest*> pending_;  // oldest first; its shards are wanted
  std::thread thread_;
};

}  // namespace millrace
