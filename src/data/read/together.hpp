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
#include "millrace/io/rounds.hpp"

namespace millrace {

class Together {
 public:
  struct Request {  // empty: this rank takes part without
    std::span<const std::int64_t> ids = {};
    void *x = nullptr, *y = nullptr;
  };
  // read: of these shards, in this order; all ranks' calls are the same. Called by the thread; what it throws goes to
  // who asked, after the round.
  using Read = std::function<void(std::span<const std::int64_t> shards, const Request&)>;
  Together(World&, const ShardIndex&, Read);  // collective; the index outlives it
  ~Together();                                // collective
  std::unique_ptr<Reads> reads();

 private:
  class OfWorker;
  struct Asked {
    Request request;
    bool begun = false, over = false;  // its round
    std::exception_ptr failure;
  };
  void ask(Asked&);
  void wait_for(Asked&, bool Asked::*);
  void want_next();
  void run();

  const ShardIndex& index_;
  const Read read_;
  io::Rounds rounds_;
  std::mutex mutex_;
  std::condition_variable over_;
  std::deque<Asked*> asked_;  // oldest first; its shards are wanted
  std::thread thread_;
};

}  // namespace millrace
