#include "data/read/collective_reader.hpp"

#include <set>
#include <system_error>

#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {

class CollectiveReader::WorkerQueue : public ReadQueue {
 public:
  explicit WorkerQueue(CollectiveReader& reader) : reader_(reader) {}
  ~WorkerQueue() override {
    if (begun_) reader_.wait_for(pending_, &PendingRequest::done);  // until then the reader writes to its memory
  }
  void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
    pending_ = {{ids, x, y}, false, false, nullptr};
    begun_ = true;
    reader_.submit(pending_);
  }
  bool can_submit() const override { return !begun_; }
  void finish() override {
    // Before its round starts, a checkpoint may use the files. That wait does not count as a slow read.
    reader_.wait_for(pending_, &PendingRequest::begun);
    const ReadScope here(reader_.index_.shards[shard_of(reader_.index_, pending_.request.ids.front())]);
    reader_.wait_for(pending_, &PendingRequest::done);
    begun_ = false;
    if (pending_.failure) std::rethrow_exception(pending_.failure);
  }

 private:
  CollectiveReader& reader_;
  PendingRequest pending_;
  bool begun_ = false;
};

CollectiveReader::CollectiveReader(World& world, const ShardIndex& index, Read read)
    : index_(index), read_(std::move(read)), schedule_(world) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    fail(Exit::config, "cannot start the thread of data.reader = mpio_collective ({}). raise ulimit -u",
         e.code().message());
  }
}

CollectiveReader::~CollectiveReader() {
  schedule_.leave();
  thread_.join();
}

std::unique_ptr<ReadQueue> CollectiveReader::make_read_queue() { return std::make_unique<WorkerQueue>(*this); }

void CollectiveReader::submit(PendingRequest& request) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(&request);
  if (pending_.size() == 1) request_next();
}

void CollectiveReader::wait_for(PendingRequest& request, bool PendingRequest::*what) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return request.*what; });
}

void CollectiveReader::request_next() {
  std::set<std::int64_t> shards;
  for (const std::int64_t id : pending_.front()->request.ids) shards.insert(std::int64_t(shard_of(index_, id)));
  schedule_.request({shards.begin(), shards.end()});
}

void CollectiveReader::run() {
  while (auto round = schedule_.next()) {
    PendingRequest* mine = nullptr;
    if (round->mine) {
      const std::lock_guard lock(mutex_);
      mine = pending_.front();
      mine->begun = true;
    }
    done_.notify_all();
    std::exception_ptr failure;
    try {
      read_(round->numbers, mine ? mine->request : Request{});
    } catch (const Error& e) {
      if (e.code() != Exit::data) throw;  // not a failed read: it ends all ranks
      failure = std::current_exception();
    }
    round.reset();  // lets other users of the schedule have the next round
    if (!mine) continue;
    {
      const std::lock_guard lock(mutex_);
      mine->done = true;
      mine->failure = failure;
      pending_.pop_front();
      if (!pending_.empty()) request_next();
    }
    done_.notify_all();
  }
}

}  // namespace millrace
