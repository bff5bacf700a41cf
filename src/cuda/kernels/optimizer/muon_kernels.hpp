// The kernels of muon around the matrix products. A block handles one chunk of a matrix.
#pragma once
#include "cuda/kernels/optimizer/optimizer_kernels.hpp"

namespace millrace::cuda {

// Updates the momentum. Writes the update before the Newton-Schulz steps, and the sum of its squares for each chunk
// (squares: null with shards). The update may be the gradient.
struct AdvanceMuon {
  const Chunk* chunks;  // of the matrix
  const StepScalars* step_scalars;
  const float* gradient;
  float *moment, *update;
  std::int64_t begin;  // of the matrix in the flat buffers; update[0] is its first element
  double* squares;
  float momentum;
  bool nesterov;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const StepScalars d = *step_scalars;
    if (!d.apply) return;
    const Chunk chunk = chunks[block.index()];
    double sum = 0;
    for_each_pack_of(block, chunk, [&](int i) {
      float g[pack], v[pack];
      load(g, gradient + chunk.begin + i);
      load(v, moment + chunk.moments + i);
      for (int k = 0; k < pack; ++k) {
        const float x = g[k] * d.unscale;
        v[k] = momentum * v[k] + (1 - momentum) * x;
        g[k] = nesterov ? momentum * v[k] + (1 - momentum) * x : v[k];
        sum += double(g[k]) * double(g[k]);
      }
      store(moment + chunk.moments + i, v);
      store(update + (chunk.begin - begin) + i, g);
    });
    sum = block.sum(sum);
    if (squares && block.thread() == 0) squares[block.index()] = sum;
  }
};

// With shards: copies the updates of all ranks, and adds their squares as AdvanceMuon does.
struct CollectMuon {
  const Chunk* chunks;  // of the matrix, of all ranks
  const StepScalars* step_scalars;
  const float* updates;  // as the flat buffers
  float* update;
  std::int64_t begin;  // as in AdvanceMuon
  double* squares;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    if (!step_scalars->apply) return;
    const Chunk chunk = chunks[block.index()];
    double sum = 0;
    for_each_pack_of(block, chunk, [&](int i) {
      float x[pack];
      load(x, updates + chunk.begin + i);
      for (int k = 0; k < pack; ++k) sum += double(x[k]) * double(x[k]);
      store(update + (chunk.begin - begin) + i, x);
    });
    sum = block.sum(sum);
    if (block.thread() == 0) squares[block.index()] = sum;
  }
};

// Divides the update by its Frobenius norm. The rest of the last pack, behind the matrix, becomes zero in the buffers
// of both the steps' source and result, so that the padding of the weights stays zero.
struct NormaliseMuon {
  const Chunk* chunks;
  const StepScalars* step_scalars;
  const double* squares;  // one for each chunk
  float *update, *other;
  std::int64_t begin;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    if (!step_scalars->apply) return;
    const Chunk chunk = chunks[block.index()];
    double sum = 0;
    for (int i = block.thread(); i < block.blocks(); i += block.threads()) sum += squares[i];
    const float norm = float(sqrt(block.sum(sum)));
    const float divisor = norm > NewtonSchulz::min_norm ? norm : NewtonSchulz::min_norm;
    for_each_pack_of(block, chunk, [&](int i) {
      const std::int64_t at = chunk.begin - begin + i;
      float x[pack];
      load(x, update + at);
      for (int k = 0; k < pack; ++k) x[k] = i + k < chunk.count ? x[k] / divisor : 0;
      store(update + at, x);
      for (int k = 0; k < pack; ++k)
        if (i + k >= chunk.count) other[at + k] = 0;
    });
  }
};

// The update rule of a matrix; g is an element of the nearly orthogonal matrix.
struct MuonStep {
  static constexpr int moments = 0;
  static constexpr bool takes_gradient = true;
  float factor;  // muon_factor()
  MR_DEVICE_INLINE void operator()(const StepScalars& d, float decay, float, float g, float& w, float&, float&) const {
    w = w * (1 - d.learning_rate * decay) - d.learning_rate * factor * g;
  }
};

}  // namespace millrace::cuda
