// What the benchmarks of the loader share. Internal to bench/.
#pragma once
#include <time.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/clock.hpp"
#include "millrace/base/median.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {

// An emulated step, which needs no CPU.
inline void sleep_for(double seconds) {
  const auto full_seconds = time_t(seconds);
  timespec left{full_seconds, long((seconds - double(full_seconds)) * 1e9)};
  while (::nanosleep(&left, &left) != 0) {
  }
}

// Waits until the workers have filled the ring, so that they do not use cores and disk during the next measurement.
inline void wait_until_idle(const Loader& loader) {
  std::uint64_t before = 0;
  do {
    before = loader.stats().bytes_read;
    sleep_for(0.05);
  } while (loader.stats().bytes_read != before);
}

// Endless random samples through a loader that lives as long as the benchmark, so its engine has tuned itself after the
// first round.
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

  // Seconds for this many samples.
  double seconds(std::int64_t samples) {
    for (int b = 0; b < 2 * prefetch_; ++b) loader_->next();  // drops what was read before this round
    const double began = steady_seconds();
    for (std::int64_t done = 0; done < samples; done += micro_batch_) loader_->next();
    const double took = steady_seconds() - began;
    wait_until_idle(*loader_);
    return took * double(samples) / double((samples + micro_batch_ - 1) / micro_batch_ * micro_batch_);
  }

  std::string name() const { return source_->describe().substr(0, source_->describe().find(',')); }

 private:
  MicroBatch next() {
    if (first_ + micro_batch_ > rows_) {
      first_ = 0;
      step_ = 0;
      ++epoch_;
    }
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

// A loader that lives as long as the benchmark, so its engine has tuned itself after the first round.
class LoaderUnderTest {
 public:
  LoaderUnderTest(Device& device, Source& source, const ShardIndex& index, const Sampler& sampler,
                  const LoaderOptions& options)
      : index_(index), options_(options), loader_(device, source, index, sampler, options, [this] { return item(); }) {}

  struct Measurement {
    double rate;        // samples/s
    double wait_share;  // fraction of the time that steps wait for data
    double chunks;      // decoded per sample
    double offered;     // what the workers could deliver without waiting for free slots / what the steps consume
  };
  // Takes at least min_seconds. step: seconds that a step sleeps; 0: steps without work. A sleep that ends late
  // shortens the next one, by up to a step. Otherwise emulated steps would be longer on a busy machine, in favour of
  // the loader.
  Measurement measure(double min_seconds, double step) {
    const LoaderStats before = loader_.stats();
    // Batches that were read before the clock starts would raise the rate: the ring is emptied first.
    if (step == 0) empty_ring();
    if (step > 0) loader_.next();
    double samples = 0, waited = 0, took = 0, due = 0;  // due: when the step should end
    const double began = steady_seconds();
    const auto elapsed = [&] { return steady_seconds() - began; };
    while ((took = elapsed()) < min_seconds) {
      const double rows = double(loader_.next()->item.rows), lasts = step * rows / double(options_.max_rows);
      const double arrived = elapsed();
      waited += arrived - took;
      samples += rows;
      if (step == 0) continue;
      due = std::max(due + (arrived - took), arrived - lasts) + lasts;
      sleep_for(std::max(0.0, due - arrived));
    }
    const LoaderStats after = loader_.stats();
    const double read =
        double(after.bytes_read - before.bytes_read) / double(index_.sample_bytes() + y_batch_bytes(index_));
    const double busy = (after.read_seconds - before.read_seconds) / double(std::max(1, options_.workers));
    return {samples / took, waited / took, double(after.decoded.chunks - before.decoded.chunks) / std::max(1.0, read),
            step > 0 ? step * read / double(options_.max_rows) / std::max(1e-9, busy) : 0};
  }

  void wait_until_idle() const { millrace::wait_until_idle(loader_); }

 private:
  // The ring is empty as soon as a batch has to be waited for.
  void empty_ring() {
    for (int b = 0; b < 1024; ++b) {
      const double before = loader_.stats().wait_seconds;
      loader_.next();
      if (loader_.stats().wait_seconds > before + 20e-6) return;
    }
  }

  std::optional<MicroBatch> item() {
    if (first_ >= index_.rows) {
      first_ = 0;
      ++epoch_;
    }
    const MicroBatch out{epoch_, 0, first_, std::min(options_.max_rows, index_.rows - first_)};
    first_ += out.rows;
    return out;
  }

  const ShardIndex& index_;
  const LoaderOptions options_;
  std::int64_t first_ = 0, epoch_ = 0;
  Loader loader_;  // its workers call item()
};

}  // namespace millrace
