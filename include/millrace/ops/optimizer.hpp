// The optimizer as one prepared operation over flat buffers. A step computes the global norm of the gradient and tests
// it for overflow. Then it unscales and clips the gradient, applies weight decay by segment, and updates the master
// weights, the 16-bit weights, the running statistics and the loss scale. After an overflow, weights, moments and
// running values are unchanged. All decisions are made on the device, from the StepState.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "millrace/ops/op.hpp"

namespace millrace {

// Elements [begin, begin + count) of the flat buffers with the same weight decay and learning rate. Segments are in
// order and do not overlap. `begin` is a multiple of 4. Elements outside of all segments, and their moments, are never
// changed, and their gradient counts neither for the norm nor as an overflow.
struct OptimizerSegment {
  std::int64_t begin = 0, count = 0;
  float weight_decay = 0;
  float lr_factor = 1;  // on StepState::learning_rate
  // muon: the segment is one row-major matrix of rows * columns == count elements. 0: it is none, and adamw updates it.
  std::int64_t rows = 0, columns = 0;
  bool operator==(const OptimizerSegment&) const = default;
};

// ZeRO stage 1 (Rajbhandari et al. 2020): elements that only this rank updates, and whose moments only it stores.
struct OptimizerShard {
  std::int64_t begin = 0, count = 0;  // multiples of OptimizerSpec::chunk_size
};

struct OptimizerSpec {
  // The work is divided into chunks; no chunk crosses a multiple of this many elements. Sums of squares are computed
  // for each chunk and added in the order of the chunks. So sharding does not change a bit of the result.
  static constexpr std::int64_t chunk_size = 4096;
  // lars and lamb scale the step of each segment in proportion to the norm of its weights; a segment is then one
  // parameter. Below, wd is the weight_decay of the segment, and |.| the norm over the segment. The ratio is 1 if wd or
  // one of the norms is 0, as for biases and the parameters of norms.
  //   lars (You et al. 2017): like sgd, with ratio * (g + wd * w) instead of g + wd * w;
  //                           ratio = trust_coefficient * |w| / (|g| + wd * |w| + epsilon)
  //   lamb (You et al. 2020): u = m' / (sqrt(v') + epsilon) + wd * w, with Adam's corrected moments m' and v';
  //                           w <- w - rate * ratio * u; ratio = |w| / |u|
  // muon (Jordan et al. 2024) updates the matrices among the segments like torch.optim.Muon, and the others like adamw:
  //   v <- momentum * v + (1 - momentum) * g; u = nesterov ? momentum * v + (1 - momentum) * g : v
  //   w <- w * (1 - rate * wd) - rate * muon_factor() * O; O: u after newton_schulz_steps, nearly orthogonal
  // With shards, a rank computes O of each matrix of which it owns elements. So it needs u of the other ranks.
  enum class Kind { sgd, adamw, lars, lamb, muon };
  enum class MuonScale { match_rms_adamw, original, spectral_unclamped };  // see muon_factor()
  Kind kind = Kind::sgd;
  std::int64_t count = 0;  // elements of master, weights, gradient and moments, including padding (which stays zero)
  std::int64_t stats_count = 0;  // elements of running and stats
  std::vector<OptimizerSegment> segments;
  // In order; empty: all elements. Otherwise the moments hold only the elements of the shards, one shard after another.
  std::vector<OptimizerShard> shards;
  // With shards: the master holds the elements [0, whole_master), then, like the moments, only those of the shards
  // behind. No shard crosses whole_master.
  std::int64_t whole_master = std::numeric_limits<std::int64_t>::max();
  float momentum = 0.9f;  // sgd, lars, muon; sgd as in PyTorch: v = momentum * v + g, and v = g in the first step
  bool nesterov = false;
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;  // adamw: decoupled decay, bias correction with t = applied + 1
  float trust_coefficient = 0.001f;                     // lars
  int newton_schulz_steps = 5;                          // muon
  MuonScale muon_scale = MuonScale::match_rms_adamw;
  float average = 0;  // > 0: after each applied step, average <- average + this fraction * (master - average)
  // > 0: the gradient is that of row_weight / loss_positions times the sum of the losses; the step uses that of the sum
  // divided by loss_weight. This is the mean over the labels that count, by their weights. It is the number by which
  // the loss divides the weight of a row: its positions, or values of a prediction.
  std::int64_t loss_positions = 0;
  float clip = 0;               // > 0: the unscaled gradient is multiplied by min(1, clip / (norm + 1e-6))
  float stats_momentum = 0.1f;  // running <- (1 - m) * running + m * stats
  // Elements of running and stats with their momentum, if they do not all have stats_momentum.
  struct StatsPart {
    std::int64_t begin = 0, count = 0;
    float momentum = 0.1f;
    bool operator==(const StatsPart&) const = default;
  };
  std::vector<StatsPart> own_momenta;
  DType weight_dtype = DType::f32;  // type of `weights`; f32: weights is null, and the master weights are used

  std::vector<StatsPart> stats_parts() const {
    if (!own_momenta.empty() || stats_count == 0) return own_momenta;
    return {{0, stats_count, stats_momentum}};
  }
  bool by_segment() const { return kind == Kind::lars || kind == Kind::lamb; }
  // muon keeps no second moment of matrices; it stays zero.
  int moment_count() const { return by_adam() ? 2 : momentum != 0 ? 1 : 0; }
  bool by_adam() const { return kind == Kind::adamw || kind == Kind::lamb || kind == Kind::muon; }
  bool has_matrices() const;     // muon updates at least one
  bool gathers_updates() const;  // muon with shards: see OptimizerArgs::updates
  int phases() const { return kind == Kind::lamb || gathers_updates() ? 3 : 2; }
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
  float* average = nullptr;  // with spec.average; has the elements that the moments have
  double* sums = nullptr;    // square_sum_count(spec) values if the spec has shards; null otherwise
  // With spec.loss_positions: three parts whose sum is that of StepState::loss_weight over all ranks.
  const double* loss_weight = nullptr;
  // With spec.gathers_updates(): the memory of `gradient`. Phase 1 writes the u of this rank's elements of matrices
  // over their gradient, if the step is applied. Before phase 2 the caller must all-gather the shards that hold
  // matrices.
  float* updates = nullptr;
};

// A step consists of phases() calls of run(), in order; each only enqueues work. With shards, a phase writes to
// args.sums the sums of squares of its own chunks, and zeros for the chunks of other ranks. The caller must all-reduce
// args.sums before the next phase, but with spec.gathers_updates() it all-gathers args.updates before phase 2. The
// result is bitwise the same for any shards and, on the CPU, for any number of threads.
class OptimizerOp {
 public:
  virtual ~OptimizerOp() = default;
  virtual int phases() const = 0;
  virtual void run(int phase, const OptimizerArgs&) = 0;
  void step(const OptimizerArgs& args) {
    for (int phase = 0; phase < phases(); ++phase) run(phase, args);
  }
};

// For backends: a part of one segment that does not cross a multiple of OptimizerSpec::chunk_size.
struct OptimizerChunk {
  std::int64_t begin = 0, moments = 0, master = 0;  // first element in the flat buffers, the moments, and the master
  std::int32_t count = 0, segment = 0;
  std::int32_t number = 0;  // index among the chunks of all shards
  float weight_decay = 0, lr_factor = 1;
};
struct OptimizerChunks {
  std::vector<OptimizerChunk> owned;
  std::vector<std::int64_t> first;  // for each segment, the number of its first chunk; then the count of all chunks
  std::int64_t all() const { return first.back(); }
};
// Throws Error(internal) if segments or shards overlap, end beyond count, or are not aligned: segments begin at a
// multiple of 4, shards at a multiple of chunk_size; or if a shard crosses whole_master.
OptimizerChunks split_into_chunks(const OptimizerSpec&);
// muon: the factor on the learning rate of a matrix. match_rms_adamw (Liu et al. 2025): 0.2 * sqrt(max(rows, columns)),
// so that the root mean square of a step is about that of adamw. original: sqrt(max(1, rows / columns)).
// spectral_unclamped: sqrt(rows / columns).
float muon_factor(OptimizerSpec::MuonScale, const OptimizerSegment&);

// A step of Newton and Schulz replaces a matrix X, whose Frobenius norm is at most 1, by a X + (b A + c A A) X, where
// A = X X^T. It moves all singular values towards 1. If X has more rows than columns, the products are those of X^T.
struct NewtonSchulz {
  static constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  static constexpr float min_norm = 1e-7f;  // a matrix is divided by its norm, but by no smaller value
  // Elements of float32 that the steps of the largest matrix need: X twice, A and b A + c A A. Each begins at a
  // multiple of 64.
  struct Workspace {
    std::int64_t matrix = 0, gram = 0;
    std::int64_t count() const { return 2 * (matrix + gram); }
  };
  static Workspace workspace(const OptimizerSpec&);  // all zero without matrices
};

// Number of values in OptimizerArgs::sums: one for each chunk of all shards, two for lars and lamb.
std::int64_t square_sum_count(const OptimizerSpec&);

}  // namespace millrace
