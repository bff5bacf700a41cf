// What benches of the loader share. Private to the data room.
#pragma once
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/data/loader.hpp"

namespace millrace {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// An emulated step: takes no core.
inline void sleep_for(double seconds) {
  const auto whole = time_t(seconds);
  timespec left{whole, long((seconds - double(whole)) * 1e9)};
  while (::nanosleep(&left, &left) != 0) {
  }
}

// Endless random samples through a loader that lives as long as the bench: its engine has settled after the first turn.
class EngineUnderTest {
 public:
  EngineUnderTest(Device& device, const ShardIndex& index, std::int64_t rows, std::int64_t micro_batch, int workers,
                  int prefetch, Reader reader)
      : rows_(rows),
        micro_batch_(micro_batch),
        prefetch_(prefetch),
        source_(make_source(*solo_world(), index, reader)),
        sampler_(rows, micro_batch, micro_batch, 1, true) {
    loader_ = std::make_unique<Loader>(device, *source_, index, sampler_, LoaderOptions{workers, prefetch, micro_batch},
                                       [this]() -> std::optional<MicroBatch> { return next(); });
  }

  double seconds(std::int64_t samples) {
    for (int b = 0; b < 2 * prefetch_; ++b) loader_->next();  // what was read before the turn
    const auto began = std::chrono::steady_clock::now();
    for (std::int64_t done = 0; done < samples; done += micro_batch_) loader_->next();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return took * double(samples) / double((samples + micro_batch_ - 1) / micro_batch_ * micro_batch_);
  }

  std::string name() const { return source_->describe().substr(0, source_->describe().find(',')); }

 private:
  MicroBatch next() {
    if (first_ + micro_batch_ > rows_) first_ = 0, step_ = 0, ++epoch_;
    const MicroBatch item{epoch_, step_++, first_, micro_batch_};
    first_ += micro_batch_;
    return item;
  }

  const std::int64_t rows_, micro_batch_;
  const int prefetch_;
  std::unique_ptr<Source> source_;
  const Sampler sampler_;
  std::int64_t first_ = 0, step_ = 0, epoch_ = 0;
  std::unique_ptr<Loader> loader_;
};

}  // namespace millrace
