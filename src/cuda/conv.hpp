// Convolution by cuDNN.
#pragma once
#include <memory>

#include "block.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cuda {
namespace cudnn {
class Cudnn;
}

// Error(config) where cuDNN has no engine. The Cudnn must outlive the op.
std::unique_ptr<Op> make_conv(const ConvSpec&, const Context&, cudnn::Cudnn&);

}  // namespace millrace::cuda
