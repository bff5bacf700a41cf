// The optimizer as one prepared operation over flat buffers: global norm and overflow test, then unscale, clip, decay
// by segment, update of the master and of the 16-bit weights, running statistics, loss scale. An overflow (scale_on)
// leaves weights, moments and running values untouched; all of it is decided on the device from the StepState.
#pragma once
#include <vector>

#include "millrace/ops/op.hpp"

namespace millrace {

struct OptimizerSegment {
  std::int64_t begin = 0, count = 0;  // elements of the flat buffers, in order, not overlapping; begin: a multiple of 4
  float weight_decay = 0;
};

// ZeRO stage 1 (Rajbhandari et al. 2020): elements that this rank updates, and whose moments it alone keeps.
struct OptimizerShard {
  std::int64_t begin = 0, count = 0;  // multiples of OptimizerSpec::chunk_size
};

struct OptimizerSpec {
  // What the work is cut into: no piece crosses a multiple of this many elements. Sums of squares are made by piece and
  // added in the pieces' order, so slices change no bit.
  static constexpr std::int64_t chunk_size = 4096;
  // lars and lamb give each segment a step in proportion to its weights; a segment is then one parameter. With wd the
  // segment's weight_decay, |.| the norm over the segment, and a ratio of 1 where wd or either norm is 0 (biases,
  // norms):
  //   lars (You et al. 2017): as sgd, with ratio * (g + wd * w) in place of g + wd * w;
  //                           ratio = trust_coefficient * |w| / (|g| + wd * |w| + epsilon)
  //   lamb (You et al. 2020): u = m' / (sqrt(v') + epsilon) + wd * w, with Adam's corrected moments m' and v';
  //                           w <- w - rate * ratio * u; ratio = |w| / |u|
  enum class Kind { sgd, adamw, lars, lamb };
  Kind kind = Kind::sgd;
  std::int64_t count = 0;  // elements of master, weights, gradient and moments, padding included (padding stays zero)
  std::int64_t stats_count = 0;  // elements of running and stats
  std::vector<OptimizerSegment> segments;
  std::vector<OptimizerShard> shards;  // in order; empty: all. Else moments hold these alone, one after the other
  float momentum = 0.9f;               // sgd, lars; PyTorch's form: v = momentum * v + g; first step v = g
  bool nesterov = false;
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;  // adamw: decoupled decay, bias correction with t = applied + 1
  float trust_coefficient = 0.001f;                     // lars
  float clip = 0;                   // > 0: the unscaled gradient is multiplied by min(1, clip / (norm + 1e-6))
  float stats_momentum = 0.1f;      // running <- (1 - m) * running + m * stats
  DType weight_dtype = DType::f32;  // of `weights`; f32: weights is null, the master serves

  bool by_segment() const { return kind == Kind::lars || kind == Kind::lamb; }
  int moment_count() const { return kind == Kind::adamw || kind == Kind::lamb ? 2 : momentum != 0 ? 1 : 0; }
};

struct OptimizerArgs {
  float* master = nullptr;
  void* weights = nullptr;
  const float* gradient = nullptr;  // summed over ranks, still multiplied by the loss scale
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  float* running = nullptr;
  const float* stats = nullptr;  // summed over ranks
  StepState* state = nullptr;
  double* sums = nullptr;  // square_sums(spec) of them, for a step in slices; else null
};

// A step is its parts in order; each only enqueues. With slices, a part leaves in args.sums what the ranks must add up
// before the next part: its own pieces' sums of squares, and zeros for those of others. Bitwise the same for any slices
// and thread count (CUDA: any slices).
class OptimizerOp {
 public:
  virtual ~OptimizerOp() = default;
  virtual int phases() const = 0;
  virtual void run(int part, const OptimizerArgs&) = 0;
  void step(const OptimizerArgs& args) {
    for (int part = 0; part < phases(); ++part) run(part, args);
  }
};

struct OptimizerChunk {
  std::int64_t begin = 0, moments = 0;  // in the flat buffers, in the moments
  std::int32_t count = 0, segment = 0;
  std::int32_t number = 0;  // among the pieces of all slices
  float weight_decay = 0;
};
struct OptimizerChunks {
  std::vector<OptimizerChunk> owned;
  std::vector<std::int64_t> first;  // by segment: number of its first piece; then the number of all pieces
  std::int64_t all() const { return first.back(); }
};
// Error(internal) when segments or slices overlap, begin at no multiple of 4 (slices: of a piece) or end beyond count.
OptimizerChunks split_into_chunks(const OptimizerSpec&);
std::int64_t square_sum_count(const OptimizerSpec&);

}  // namespace millrace
