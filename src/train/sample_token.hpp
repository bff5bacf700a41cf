// Draws the next token from the results of a language model.
#pragma once
#include <cstdint>
#include <span>

namespace millrace {

// The index of a logit. temperature 0: the largest, the first of equal ones. Otherwise index i is drawn with a
// probability proportional to exp(logits[i] / temperature), among the top_k largest logits (0: all; of equal ones the
// first). random: uniform in [0, 1). Error(diverged): a logit is not a number, or infinite.
std::int32_t sample_token(std::span<const float> logits, double temperature, std::int64_t top_k, double random);

// The random number for the token at `position`, a function of its arguments only.
double random_for_token(std::uint64_t seed, std::uint64_t position);

}  // namespace millrace
