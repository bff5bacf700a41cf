// Several data sets whose values are concatenated to one sample. Each has an engine, all of one kind, which writes its
// part of a sample straight to its place, so nothing is copied. Each sample then needs a separate read, because in
// memory the other parts are between neighbouring samples. Several inputs of a network are read in the same way.
#include <fmt/core.h>

#include <algorithm>
#include <exception>

#include "data/decode/convert_values.hpp"
#include "data/open/wrappers.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/index/inputs.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

class ConcatenatedSource : public Source {
 public:
  ConcatenatedSource(const ShardIndex& index, std::vector<std::unique_ptr<Source>> parts)
      : values_(std::size_t(index.sample.count())),
        value_bytes_(size_of(index.x.dtype)),
        swaps_(index.x.big_endian && index.inputs.empty()),
        kind_(index.inputs.empty() ? "concatenated data sets" : "inputs"),
        parts_(std::move(parts)) {
    for (std::size_t i = 0; i < index.inputs.size(); ++i) {
      begins_.push_back(input_begin(index, i));
      names_ += fmt::format("{}{}", i ? ", " : "", index.inputs[i].x.name);
    }
    std::size_t begin = 0;
    for (const ConcatenatedPart& part : index.x.parts) {
      begins_.push_back(begin);
      begin += std::size_t(part.count) * (index.sample_bytes() / std::size_t(index.sample[-1]));
      names_ += fmt::format("{}{}", names_.empty() ? "" : ", ", part.name);
    }
  }

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    for (std::size_t p = 0; p < parts_.size(); ++p) parts_[p]->read(ids, static_cast<char*>(x) + begins_[p], y);
    to_native_order(x, ids.size());
  }
  std::unique_ptr<ReadQueue> make_read_queue(std::span<char> slots) override {
    return std::make_unique<ConcatenatedReadQueue>(*this, slots);
  }
  std::string describe() const override {
    return fmt::format("{}; {} {}: {}", parts_[0]->describe(), parts_.size(), kind_, names_);
  }
  DecodeStats decoded() const override {
    DecodeStats all;
    for (const auto& part : parts_) {
      const DecodeStats one = part->decoded();
      all.chunks += one.chunks;
      all.seconds += one.seconds;
    }
    return all;
  }
  int max_workers() const override {
    int most = parts_[0]->max_workers();
    for (const auto& part : parts_) most = std::min(most, part->max_workers());
    return most;
  }
  void reopen(std::size_t shard) override {
    for (const auto& part : parts_) part->reopen(shard);
  }

 private:
  class ConcatenatedReadQueue : public ReadQueue {
   public:
    ConcatenatedReadQueue(ConcatenatedSource& source, std::span<char> slots) : source_(source) {
      for (const auto& part : source.parts_) parts_.push_back(part->make_read_queue(slots));
    }
    void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
      units_[begun_++ % units_.size()] = {x, ids.size()};
      for (std::size_t p = 0; p < parts_.size(); ++p)
        parts_[p]->begin(ids, static_cast<char*>(x) + source_.begins_[p], y);
    }
    bool can_submit() const override {
      if (begun_ - finished_ == units_.size()) return false;
      for (const auto& part : parts_)
        if (!part->can_submit()) return false;
      return true;
    }
    void finish() override {
      const Unit unit = units_[finished_++ % units_.size()];
      std::exception_ptr failure;  // every part is finished, even if another one failed
      for (const auto& part : parts_) try {
          part->finish();
        } catch (...) {
          if (!failure) failure = std::current_exception();
        }
      if (failure) std::rethrow_exception(failure);
      source_.to_native_order(unit.x, unit.rows);
    }
    void stop() override {
      for (const auto& part : parts_) part->stop();
    }

   private:
    struct Unit {
      void* x = nullptr;
      std::size_t rows = 0;
    };
    ConcatenatedSource& source_;
    std::vector<std::unique_ptr<ReadQueue>> parts_;
    std::array<Unit, 128> units_{};
    std::size_t begun_ = 0, finished_ = 0;
  };

  void to_native_order(void* x, std::size_t rows) const {
    if (swaps_) swap_bytes(x, rows * values_, value_bytes_);
  }

  const std::size_t values_, value_bytes_;
  const bool swaps_;
  const char* const kind_;
  std::vector<std::unique_ptr<Source>> parts_;
  std::vector<std::size_t> begins_;  // where each part starts within a sample, in bytes
  std::string names_;
};

}  // namespace

std::unique_ptr<Source> make_concatenated_source(const ShardIndex& index, std::vector<std::unique_ptr<Source>> parts) {
  return std::make_unique<ConcatenatedSource>(index, std::move(parts));
}

}  // namespace millrace
