// Sums over the ranks of one host, straight through their mapped memory.
#pragma once
#include <cstddef>
#include <span>

#include "millrace/base/types.hpp"

namespace millrace {

// For elements [begin, end): the sum over peers in their order is written to every target. dtype f32, f64, bf16 or f16;
// 16-bit elements are added in float32 and rounded once.
void reduce_peers(std::span<void* const> peers, std::span<void* const> targets, std::size_t begin, std::size_t end,
                  DType dtype);
// The same sum into float32 scratch, and back: between hosts.
void reduce_peers_to_float(std::span<void* const> peers, std::size_t begin, std::size_t end, DType dtype, float* out);
void write_from_float(const float* sums, std::span<void* const> targets, std::size_t begin, std::size_t end,
                      DType dtype);

}  // namespace millrace
