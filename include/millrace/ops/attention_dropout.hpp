// Which probabilities the dropout of an attention keeps: a pure function of the sample id, the step, the layer, the
// head, the query and the key. So it depends neither on ranks, micro-batches and threads nor on the order of blocks,
// and the backward pass finds it again. Device kernels include this header too.
//
// A draw is for a query and four keys of a tile of 64: draw x of a tile is for its keys x, x + 16, x + 32 and x + 48.
#pragma once
#include "millrace/base/rng.hpp"

namespace millrace {

struct AttentionDropout {
  static constexpr int tile = 64, draws = tile / 4;  // keys and draws of a tile

  std::uint64_t key = 0;
  std::uint32_t draws_of_query = 0;
  float probability = 0;

  AttentionDropout() = default;
  AttentionDropout(std::uint64_t seed, std::uint32_t layer, std::int64_t positions, float probability)
      : key(rng_key(seed, RngPurpose::dropout) + layer),
        draws_of_query(std::uint32_t((positions + tile - 1) / tile * draws)),
        probability(probability) {}
  // Draws are counted in 32 bits.
  static bool can_count(std::int64_t positions) { return positions <= std::int64_t(1) << 17; }

  // The arguments of philox() beside the id, for the draw 0 of a tile. The next draws follow it.
  MR_HOST_DEVICE std::uint64_t key_of_head(int head) const { return key + (std::uint64_t(std::uint32_t(head)) << 32); }
  MR_HOST_DEVICE std::uint64_t counter(std::uint64_t step, int query, int tile_number) const {
    return step << 32 | (std::uint32_t(query) * draws_of_query + std::uint32_t(tile_number * draws));
  }
  MR_HOST_DEVICE bool keeps(std::uint32_t bits) const { return uniform01(bits) >= probability; }

  // One probability alone.
  bool keeps(std::uint64_t id, std::uint64_t step, int head, int query, int of_key) const {
    const int x = of_key % tile;
    return keeps(
        philox(key_of_head(head), counter(step, query, of_key / tile) + std::uint64_t(x % draws), id).v[x / draws]);
  }
};

}  // namespace millrace
