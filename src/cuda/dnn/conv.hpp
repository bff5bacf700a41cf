// Convolution with cuDNN.
#pragma once
#include <memory>

#include "cuda/block/block.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cuda {
namespace cudnn {
class Cudnn;
}

// Error(config) if cuDNN has no engine for it. The Cudnn must outlive the operation.
std::unique_ptr<Op> make_conv(const ConvSpec&, const LaunchContext&, cudnn::Cudnn&);

// Implements Backend::padded_channels: the number of channels that the operation would otherwise add by itself.
std::int64_t padded_channels(const ConvSpec&, cudnn::Cudnn&);

// Implements Backend::why_not_fused. Fusion is rejected if cuDNN has no engine for the fused graph, or if the measured
// time of the fused engine is longer than that of the plain engine and of the passes over memory that fusion saves.
std::string why_not_fused(const ConvSpec&, cudnn::Cudnn&);

}  // namespace millrace::cuda
