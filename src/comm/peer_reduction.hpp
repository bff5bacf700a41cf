// Sums over the ranks of one host. Each rank reads the memory of the others, which is mapped into its address space.
#pragma once
#include <cstddef>
#include <span>

#include "millrace/base/types.hpp"

namespace millrace {

// Adds the elements [begin, end) of all peers in their order and writes the sum to every target. dtype: f32, f64, bf16
// or f16; 16-bit elements are added in float32 and rounded once.
void reduce_peers(std::span<void* const> peers, std::span<void* const> targets, std::size_t begin, std::size_t end,
                  DType dtype);
// For sums that continue between hosts: the first function writes the same sum to `out` in float32, without rounding
// it. The second converts float32 sums of the elements [begin, end) to dtype and writes them to every target.
void reduce_peers_to_float(std::span<void* const> peers, std::size_t begin, std::size_t end, DType dtype, float* out);
void write_from_float(const float* sums, std::span<void* const> targets, std::size_t begin, std::size_t end,
                      DType dtype);

}  // namespace millrace
