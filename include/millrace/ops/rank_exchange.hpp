// RankExchange: how an operation shares small values with the same operation of all other ranks while it runs. Every
// rank makes the same calls in the same order, also in a micro-batch in which it has no rows (OpArgs::without_rows).
#pragma once
#include <cstdint>

#include "millrace/base/rng.hpp"

namespace millrace {

class RankExchange {
 public:
  virtual ~RankExchange() = default;
  virtual int ranks() const = 0;
  virtual int rank() const = 0;
  // Device memory for `count` values of each rank, one rank after the other.
  virtual double* values() = 0;
  double* own(std::int64_t count) { return values() + rank() * count; }
  enum class Pass { forward, backward, without_rows };
  // Enqueues the exchange: work of the compute stream after it finds the values of all ranks, and only then may write
  // its own again. pass: to which part of the step the wait belongs.
  virtual void all_gather(std::int64_t count, Pass) = 0;
};

// The statistics of one channel over some values. squares: the sum of squared differences from the mean.
struct ChannelMoments {
  double count = 0, mean = 0, squares = 0;
};

// What batch norms exchange: the number of values of a channel, then two values of each channel.
template <class T>
struct ChannelPairs {
  T* data;
  std::int64_t channels;
  static std::int64_t count(std::int64_t channels) { return 1 + 2 * channels; }
  MR_HOST_DEVICE T& rows() const { return data[0]; }
  MR_HOST_DEVICE T& first(std::int64_t c) const { return data[1 + c]; }
  MR_HOST_DEVICE T& second(std::int64_t c) const { return data[1 + channels + c]; }
  MR_HOST_DEVICE void put(std::int64_t c, double count, double a, double b) const {
    if (c == 0) rows() = count;
    first(c) = a;
    second(c) = b;
  }
};

// Those of all ranks. They are combined in the order of the ranks, so that all get the same bits.
struct PairsOfRanks {
  const double* values;
  std::int64_t channels;
  int ranks;

  MR_HOST_DEVICE ChannelPairs<const double> of(int rank) const {
    return {values + rank * (1 + 2 * channels), channels};
  }
  // Of mean and squares of each rank (Chan et al. 1979). The values of one rank alone stay as they are.
  MR_HOST_DEVICE ChannelMoments moments(std::int64_t c) const {
    ChannelMoments all;
    for (int r = 0; r < ranks; ++r) {
      const auto one = of(r);
      const double count = one.rows();
      if (count == 0) continue;
      const double total = all.count + count, delta = one.first(c) - all.mean;
      all.mean += delta * (count / total);
      all.squares += one.second(c) + delta * delta * (all.count / total) * count;
      all.count = total;
    }
    return all;
  }
  struct Sums {
    double count = 0, first = 0, second = 0;
  };
  MR_HOST_DEVICE Sums sums(std::int64_t c) const {
    Sums all;
    for (int r = 0; r < ranks; ++r) {
      const auto one = of(r);
      all.count += one.rows();
      all.first += one.first(c);
      all.second += one.second(c);
    }
    return all;
  }
};

}  // namespace millrace
