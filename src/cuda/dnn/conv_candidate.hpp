// What a convolution asks cuDNN for, and which of its candidates it uses. An internal header of conv.cpp.
#pragma once
#include "cuda/dnn/conv_graph.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cuda {

// channels: those of src that cuDNN sees, with padding.
cudnn::ConvProblem forward_problem(const ConvSpec&, std::int64_t channels, bool bias);
cudnn::ConvProblem weights_problem(const ConvSpec&, std::int64_t channels);
cudnn::ConvProblem data_problem(const ConvSpec&);

// A candidate: engines for the directions that read src, with this number of channels of src.
struct ConvCandidate {
  std::int64_t channels = 0;
  std::optional<cudnn::Choice> forward, weights;
  bool bias = false;  // the forward engine adds the bias
  double seconds = 0;
  std::size_t workspace = 0;
  bool timed = true;
};

// The fastest candidate or, if they are not timed, the one with the least workspace. Error(config) if cuDNN has no
// engine.
ConvCandidate best_candidate(const ConvSpec&, cudnn::Cudnn&);

}  // namespace millrace::cuda
