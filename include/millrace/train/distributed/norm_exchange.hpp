// NormExchange: what synchronised batch norms share, by all-gathers of doubles. Each norm reads the values of all ranks
// before the next one writes, so all use the same memory.
#pragma once
#include <utility>

#include "millrace/comm/collective.hpp"
#include "millrace/ops/rank_exchange.hpp"
#include "millrace/train/distributed/buckets.hpp"

namespace millrace {

class NormExchange : public RankExchange {
 public:
  static std::size_t bytes(std::int64_t channels, int ranks) {
    return std::size_t(ranks * ChannelPairs<double>::count(channels)) * sizeof(double);
  }
  // Collective. channels: of the norm that has most.
  NormExchange(Collective& collective, std::int64_t channels, int ranks, int rank)
      : collective_(collective), memory_(collective.allocate(bytes(channels, ranks))), ranks_(ranks), rank_(rank) {}
  int ranks() const override { return ranks_; }
  int rank() const override { return rank_; }
  double* values() override { return static_cast<double*>(memory_.data); }
  void all_gather(std::int64_t count, Pass pass) override {
    const int tag = pass == Pass::forward    ? norm_forward_tag
                    : pass == Pass::backward ? norm_backward_tag
                                             : norm_without_rows_tag;
    collective_.all_gather(memory_, 0, std::size_t(ranks_ * count), DType::f64, tag);
  }

 private:
  Collective& collective_;
  SharedRegion memory_;
  const int ranks_, rank_;
};

}  // namespace millrace
