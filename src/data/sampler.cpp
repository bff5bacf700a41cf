#include "millrace/data/sampler.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"

namespace millrace {
namespace {

constexpr int feistel_rounds = 6;

// A round's function: 64-bit mixing (splitmix64's finaliser) of one half under the round's key.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t n) : n_(n) {
  MR_CHECK(n >= 1 && n <= (std::uint64_t(1) << 40));
  key_ = mix(rng_key(seed, Purpose::shuffle) + 0x9E3779B97F4A7C15ull * (epoch + 1));
  half_bits_ = 1;
  while (half_bits_ < 20 && (std::uint64_t(1) << (2 * half_bits_)) < n) ++half_bits_;
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  const std::uint64_t mask = (std::uint64_t(1) << half_bits_) - 1;
  std::uint64_t x = position;
  do {  // a walk along the cycle of a bijection of 2^(2 half_bits), until it is inside again
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (int round = 0; round < feistel_rounds; ++round) {
      const std::uint64_t next = left ^ (mix(right + key_ + std::uint64_t(round) * 0x9E3779B97F4A7C15ull) & mask);
      left = right, right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= n_);
  return x;
}

Sampler::Sampler(std::int64_t rows, std::int64_t global_batch, std::int64_t micro_batch, std::uint64_t seed,
                 bool shuffle)
    : rows_(rows), global_batch_(global_batch), micro_batch_(micro_batch), seed_(seed), shuffle_(shuffle) {
  MR_CHECK(rows >= 1 && global_batch >= 1 && micro_batch >= 1);
}

std::int64_t Sampler::steps_per_epoch() const { return (rows_ + global_batch_ - 1) / global_batch_; }

std::int64_t Sampler::rows_of_step(std::int64_t step) const {
  return std::min(global_batch_, rows_ - step * global_batch_);
}

std::vector<MicroBatch> Sampler::share(std::int64_t epoch, std::int64_t step, int rank, int size) const {
  std::vector<MicroBatch> out;
  share(epoch, step, rank, size, out);
  return out;
}

void Sampler::share(std::int64_t epoch, std::int64_t step, int rank, int size, std::vector<MicroBatch>& out) const {
  out.clear();
  const std::int64_t rows = rows_of_step(step), count = (rows + micro_batch_ - 1) / micro_batch_;
  for (std::int64_t m = count * rank / size; m < count * (rank + 1) / size; ++m)
    out.push_back(
        {epoch, step, step * global_batch_ + m * micro_batch_, std::min(micro_batch_, rows - m * micro_batch_)});
}

void Sampler::ids(const MicroBatch& item, std::int64_t* out) const {
  const Permutation order(seed_, std::uint64_t(item.epoch), std::uint64_t(rows_));
  for (std::int64_t i = 0; i < item.rows; ++i)
    out[i] = shuffle_ ? std::int64_t(order(std::uint64_t(item.first + i))) : item.first + i;
}

std::vector<std::int64_t> Sampler::row_counts() const {
  std::vector<std::int64_t> counts;
  for (const std::int64_t step : {std::int64_t(0), steps_per_epoch() - 1}) {
    const std::int64_t rows = rows_of_step(step);
    if (rows >= micro_batch_) counts.push_back(micro_batch_);
    if (rows % micro_batch_ != 0) counts.push_back(rows % micro_batch_);
  }
  std::sort(counts.rbegin(), counts.rend());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

}  // namespace millrace
