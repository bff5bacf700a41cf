// Reads micro-batches collectively (data.reader = mpio_collective). HDF5's collective calls need all ranks at the same
// time, but loader workers submit at any time. So one thread of each rank makes these calls, in rounds that all ranks
// agree on (io/collective_schedule.hpp). A rank without a request takes part in a round with an empty selection.
// Internal to data/.
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
  struct Request {  // no ids: this rank takes part without reading anything
    std::span<const std::int64_t> ids = {};
    void *x = nullptr, *y = nullptr;
  };
  // Reads the request's samples from these shards, in this order. All ranks make the same calls. Runs in this object's
  // thread. An Error(data) that it throws is rethrown to the worker that asked, after the round.
  using Read = std::function<void(std::span<const std::int64_t> shards, const Request&)>;
  CollectiveReader(World&, const ShardIndex&, Read);  // collective; the index outlives it
  ~CollectiveReader();                                // collective
  std::unique_ptr<ReadQueue> make_read_queue();       // for one worker

 private:
  class WorkerQueue;
  struct PendingRequest {
    Request request;
    bool begun = false, done = false;  // its round has started; has ended
    std::exception_ptr failure;
  };
  void submit(PendingRequest&);
  void wait_for(PendingRequest&, bool PendingRequest::*);
  void request_next();
  void run();

  const ShardIndex& index_;
  const Read read_;
  io::CollectiveSchedule schedule_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::deque<PendingRequest*> pending_;  // oldest first; the schedule has been asked for the shards of the first
  std::thread thread_;
};

}  // namespace millrace
