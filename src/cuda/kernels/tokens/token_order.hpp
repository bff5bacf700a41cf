// Sorts the positions of a batch by their token, as the backward pass of the embedding needs them. Positions with the
// same token stay in their order. It is a radix sort with digits of 8 bits. A block has one thread for each value of a
// digit: all threads walk through the same positions, and each takes those with its value. So there are no atomics, and
// the result is the same in every run.
#pragma once
#include "cuda/block/half.hpp"

namespace millrace::cuda::token_order {

constexpr int radix = 256, tile = 512;  // tile: positions in shared memory

// The positions in the order of the lower digits, and the digit to sort by now.
template <class Token>
struct Digits {
  const Token* tokens;
  const std::int32_t* order;  // null: the positions in their order
  int count, part, shift;     // part: positions of a block
  MR_DEVICE_INLINE int position(int i) const { return order ? order[i] : i; }
  MR_DEVICE_INLINE int of(int position) const { return int(std::uint32_t(tokens[position]) >> shift & (radix - 1)); }
};

struct Tile {
  std::uint16_t digits[tile];  // radix: no position
  std::int32_t positions[tile];
};

// Calls use(position) on thread d for each position of this block's part with digit d, in their order.
template <class Block, class Token, class Use>
MR_DEVICE_INLINE void for_own_digit(Block& block, const Digits<Token>& digits, const Use& use) {
  constexpr int n = 8;
  Tile* const shared = block.template shared<Tile>();
  const int thread = block.thread(), threads = block.threads();
  const int begin = int(block.index()) * digits.part;
  const int end = begin + digits.part < digits.count ? begin + digits.part : digits.count;
  for (int first = begin; first < end; first += tile) {
    for (int k = thread; k < tile; k += threads) {
      const bool exists = k < end - first;
      const int position = exists ? digits.position(first + k) : 0;
      shared->positions[k] = position;
      shared->digits[k] = std::uint16_t(exists ? digits.of(position) : radix);
    }
    block.sync();
    for (int k = 0; k < tile && k < end - first; k += n) {
      const auto some = *reinterpret_cast<const Pack<std::uint16_t, n>*>(shared->digits + k);
      for (int j = 0; j < n; ++j)
        if (int(some.v[j]) == thread) use(shared->positions[k + j]);
    }
    block.sync();
  }
}

// counts[b * radix + d] = the number of positions with digit d in part b.
template <class Token>
struct Count {
  Digits<Token> digits;
  std::int32_t* counts;
  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int found = 0;
    for_own_digit(block, digits, [&](int) { ++found; });
    counts[block.index() * radix + block.thread()] = found;
  }
};

// Replaces each count by the place of the first such position in the sorted order. One block.
struct Offsets {
  std::int32_t* counts;
  int parts;
  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    std::int32_t* const totals = block.template shared<std::int32_t>();
    const int digit = block.thread();
    int total = 0;
    for (int b = 0; b < parts; ++b) total += counts[b * radix + digit];
    totals[digit] = total;
    block.sync();
    int place = 0;
    for (int d = 0; d < digit; ++d) place += totals[d];
    for (int b = 0; b < parts; ++b) {
      const int count = counts[b * radix + digit];
      counts[b * radix + digit] = place;
      place += count;
    }
  }
};

template <class Token>
struct Scatter {
  Digits<Token> digits;
  const std::int32_t* offsets;
  std::int32_t* order;
  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int place = offsets[block.index() * radix + block.thread()];
    for_own_digit(block, digits, [&](int position) { order[place++] = position; });
  }
};

// The places of one token in the sorted order: [first, end).
struct alignas(8) Run {
  std::int32_t first, end;
};

template <class Token>
struct FindRuns {  // index i is a place in the sorted order
  Run* runs;       // by token; those of other tokens stay empty
  const Token* tokens;
  const std::int32_t* order;
  std::int64_t count, vocabulary;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t token = tokens[order[i]];
    if (token < 0 || token >= vocabulary) return;
    if (i == 0 || std::int64_t(tokens[order[i - 1]]) != token) runs[token].first = std::int32_t(i);
    if (i + 1 == count || std::int64_t(tokens[order[i + 1]]) != token) runs[token].end = std::int32_t(i + 1);
  }
};

struct ClearRuns {
  Run* runs;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const { runs[i] = {0, 0}; }
};

// The division of the work, and where the results and the scratch memory are in the workspace.
struct Plan {
  std::int64_t positions, vocabulary, blocks;
  Plan(std::int64_t position_count, std::int64_t vocabulary_count, const LaunchContext& context)
      : positions(position_count), vocabulary(vocabulary_count) {
    const std::int64_t tiles = (positions + tile - 1) / tile, most = std::int64_t(context.multiprocessors) * 8;
    blocks = tiles < 1 ? 1 : tiles < most ? tiles : most;
  }
  std::size_t bytes() const {
    return std::size_t(vocabulary) * sizeof(Run) + std::size_t(2 * positions + blocks * radix) * sizeof(std::int32_t);
  }
  Run* runs(void* workspace) const { return static_cast<Run*>(workspace); }
  std::int32_t* order(void* workspace, int which) const {
    return reinterpret_cast<std::int32_t*>(runs(workspace) + vocabulary) + which * positions;
  }
  std::int32_t* counts(void* workspace) const { return order(workspace, 2); }
};

struct Sorted {
  const Run* runs;            // by token
  const std::int32_t* order;  // positions
};

// Enqueues the sort. The work is proportional to the positions, and to the vocabulary for clearing the runs.
template <class Token>
Sorted sort(const LaunchContext& context, const Token* tokens, const Plan& plan, void* workspace) {
  const int count = int(plan.positions), part = int((plan.positions + plan.blocks - 1) / plan.blocks);
  std::int32_t* const counts = plan.counts(workspace);
  Run* const runs = plan.runs(workspace);
  const std::int32_t* order = nullptr;
  int which = 0;
  for (int shift = 0; shift == 0 || (shift < 32 && (plan.vocabulary - 1) >> shift > 0); shift += 8) {
    const Digits<Token> digits{tokens, order, count, part, shift};
    std::int32_t* const next = plan.order(workspace, which);
    launch(context, plan.blocks, radix, sizeof(Tile), Count<Token>{digits, counts});
    launch(context, 1, radix, radix * sizeof(std::int32_t), Offsets{counts, int(plan.blocks)});
    launch(context, plan.blocks, radix, sizeof(Tile), Scatter<Token>{digits, counts, next});
    order = next;
    which = 1 - which;
  }
  for_each(context, plan.vocabulary, ClearRuns{runs});
  for_each(context, count, FindRuns<Token>{runs, tokens, order, count, plan.vocabulary});
  return {runs, order};
}

}  // namespace millrace::cuda::token_order
