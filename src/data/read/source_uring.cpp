// The engine `uring`: reads with O_DIRECT, without the page cache, and keeps as many reads in flight as the disk can
// use.
#include <fmt/core.h>

#include <mutex>
#include <utility>

#include "data/read/direct_io_reads.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

class UringSource : public Source {
 public:
  UringSource(const ShardIndex& index, std::string why, MakeAsyncReads make)
      : files_{index}, why_(std::move(why)), make_(std::move(make)), method_(make_({})->describe()) {}

  // For callers that are not loader workers, one at a time.
  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    const std::lock_guard lock(mutex_);
    if (!own_) own_ = make_read_queue({});
    own_->begin(ids, x, y);
    own_->finish();
  }

  std::unique_ptr<ReadQueue> make_read_queue(std::span<char> slots) override {
    return make_direct_io_reads(files_, slots, make_);
  }

  std::string describe() const override {
    return fmt::format("uring: O_DIRECT by {}, contiguous data, {}{}{}", method_, shard_count_text(files_.index),
                       files_.targets.in_memory() ? ", y in memory" : "", why_);
  }
  void reopen(std::size_t s) override {
    files_.plain.reopen(s);
    files_.direct.reopen(s);
  }

 private:
  DirectIoFiles files_;
  const std::string why_;
  const MakeAsyncReads make_;
  const std::string method_;  // "io_uring", "8 threads"
  std::mutex mutex_;
  std::unique_ptr<ReadQueue> own_;  // for read()
};

}  // namespace

std::unique_ptr<Source> make_uring_source(const ShardIndex& index, const std::string& why, const MakeAsyncReads& make) {
  return std::make_unique<UringSource>(index, why, make);
}

}  // namespace millrace
