#include "data/read/together.hpp"

#include <set>
#include <system_error>

#include "data/read/read_watch.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {

class Together::OfWorker : public Reads {
 public:
  explicit OfWorker(Together& together) : together_(together) {}
  ~OfWorker() override {
    if (begun_) together_.wait_for(asked_, &Asked::over);  // its memory is written to
  }
  void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
    asked_ = {{ids, x, y}, false, false, nullptr};
    begun_ = true;
    together_.ask(asked_);
  }
  bool room() const override { return !begun_; }
  void finish() override {
    together_.wait_for(asked_, &Asked::begun);  // a checkpoint may have its turn: no file is slow for that
    const Reading here(together_.index_.shards[shard_of(together_.index_, asked_.request.ids.front())]);
    together_.wait_for(asked_, &Asked::over);
    begun_ = false;
    if (asked_.failure) std::rethrow_exception(asked_.failure);
  }

 private:
  Together& together_;
  Asked asked_;
  bool begun_ = false;
};

Together::Together(World& world, const ShardIndex& index, Read read)
    : index_(index), read_(std::move(read)), rounds_(world) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    fail(Exit::config, "cannot start the thread of data.reader = mpio_collective (", e.code().message(),
         "). raise ulimit -u");
  }
}

Together::~Together() {
  rounds_.leave();
  thread_.join();
}

std::unique_ptr<Reads> Together::reads() { return std::make_unique<OfWorker>(*this); }

void Together::ask(Asked& asked) {
  const std::lock_guard lock(mutex_);
  asked_.push_back(&asked);
  if (asked_.size() == 1) want_next();
}

void Together::wait_for(Asked& asked, bool Asked::*what) {
  std::unique_lock lock(mutex_);
  over_.wait(lock, [&] { return asked.*what; });
}

void Together::want_next() {
  std::set<std::int64_t> shards;
  for (const std::int64_t id : asked_.front()->request.ids) shards.insert(std::int64_t(shard_of(index_, id)));
  rounds_.want({shards.begin(), shards.end()});
}

void Together::run() {
  while (auto round = rounds_.next()) {
    Asked* mine = nullptr;
    if (round->mine) {
      const std::lock_guard lock(mutex_);
      mine = asked_.front();
      mine->begun = true;
    }
    over_.notify_all();
    std::exception_ptr failure;
    try {
      read_(round->numbers, mine ? mine->request : Request{});
    } catch (const Error& e) {
      if (e.code() != Exit::data) throw;  // the end of all ranks
      failure = std::current_exception();
    }
    round.reset();  // the turn
    if (!mine) continue;
    {
      const std::lock_guard lock(mutex_);
      mine->over = true, mine->failure = failure;
      asked_.pop_front();
      if (!asked_.empty()) want_next();
    }
    over_.notify_all();
  }
}

}  // namespace millrace
