// Convolution by cuDNN.
#pragma once
#include <memory>

#include "cuda/runtime/block.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cuda {
namespace cudnn {
class Cudnn;
}

// Error(config) where cuDNN has no engine. The Cudnn must outlive the op.
std::unique_ptr<Op> make_conv(const ConvSpec&, const LaunchContext&, cudnn::Cudnn&);

// Backend::zero_channels: as many as the op would add itself.
std::int64_t padded_channels(const ConvSpec&, cudnn::Cudnn&);

// Backend::why_not_fused: cuDNN has no engine for the fused graph, or one that takes longer, as timed, than the plain
// one and the passes over memory that it replaces.
std::string why_not_fused(const ConvSpec&, cudnn::Cudnn&);

}  // namespace millrace::cuda
