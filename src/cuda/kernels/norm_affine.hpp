// Scale and bias of a batch norm that the next convolution applies (BatchNormSpec::produces_affine).
#pragma once
#include "cuda/block/half.hpp"

namespace millrace::cuda::batch_norm {

struct NormAffine {
  const float *gamma = nullptr, *beta = nullptr;
  f16* values = nullptr;  // (2, channels); null: not needed

  MR_DEVICE_INLINE void put(std::int64_t c, std::int64_t channels, double mean, double inverse) const {
    if (!values) return;
    values[c] = narrow<f16>(float(double(gamma[c]) * inverse));
    // From the rounded scale, so that scale * mean + bias is near beta.
    values[channels + c] = narrow<f16>(float(double(beta[c]) - mean * double(widen(values[c]))));
  }
};

}  // namespace millrace::cuda::batch_norm
