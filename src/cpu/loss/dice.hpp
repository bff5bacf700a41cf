// The Dice loss of CrossEntropySpec: sums over parts of the rows, in parallel; their combination by the calling thread;
// and the gradient, which is added to that of the cross-entropy.
#pragma once
#include <cstddef>

#include "cpu/common/row_loss.hpp"
#include "millrace/ops/loss.hpp"

namespace millrace::cpu {

std::size_t dice_bytes(const CrossEntropySpec&);  // of workspace
// Adds to the sum of the loss, and in Mode::train to diff_src[0].
void add_dice(const CrossEntropySpec&, const OpArgs&, void* workspace);

}  // namespace millrace::cpu
