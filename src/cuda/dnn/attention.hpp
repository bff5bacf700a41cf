// Attention with cuDNN.
#pragma once
#include <memory>

#include "cuda/block/block.hpp"
#include "millrace/ops/attention.hpp"

namespace millrace::cuda {
namespace cudnn {
class Cudnn;
}

// With the kernels of cuda/kernels/attention where cuDNN has no engine: in float32, for head sizes that it does not
// support, and for one position. Where it has none for any other reason, a warning says so. The Cudnn must outlive the
// operation.
std::unique_ptr<Op> make_attention(const AttentionSpec&, const LaunchContext&, cudnn::Cudnn&);

}  // namespace millrace::cuda
