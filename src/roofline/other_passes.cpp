// Counts the kernels of src/cuda/kernels that are not for batch norm.
#include <algorithm>

#include "roofline/op_passes.hpp"

namespace millrace::roofline {
namespace {

// Max pooling saves the position of each maximum: in a byte if the window is small enough.
double position_bytes(const PoolSpec& s) {
  if (s.kind != PoolSpec::Kind::max) return 0;
  std::int64_t taps = 1;
  for (int axis = 0; axis < s.window.rank; ++axis) taps *= s.window.kernel[std::size_t(axis)];
  return double(s.dst().count()) * (taps > 256 ? 2 : 1);
}

// One byte for each pack of 16 bytes.
double mask_bytes(const DropoutSpec& s) { return tensor_bytes(s.src, s.dtype) / 16; }

// What the input pass reads of the stored samples: all channels of the positions that it needs.
double read_bytes(const InputSpec& s) {
  Shape read = s.src;
  for (std::size_t a = 0; a < s.subvolume.size(); ++a) read[int(a) + 1] = s.subvolume[a];
  return tensor_bytes(read, s.raw);
}

}  // namespace

void forward_passes(const InputSpec& s, OpPasses& out) {
  out.add(PassKind::input, read_bytes(s) + tensor_bytes(s.dst(), s.dtype));
}

void forward_passes(const MoveLabelsSpec& s, OpPasses& out) {
  out.add(PassKind::input, 2 * tensor_bytes(s.dst(), s.dtype));
}

void forward_passes(const MixSpec& s, OpPasses& out) {  // each row is read twice
  out.add(PassKind::input, 3 * tensor_bytes(s.src, s.dtype));
}

void forward_passes(const DocumentsSpec& s, OpPasses& out) {
  out.add(PassKind::input, tensor_bytes(s.src, s.raw) + tensor_bytes(s.dst(), s.dtype));
}

void forward_passes(const PoolSpec& s, OpPasses& out) {
  out.add(PassKind::pool, tensor_bytes(s.src, s.dtype) + tensor_bytes(s.dst(), s.dtype) + position_bytes(s));
}
void backward_passes(const PoolSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) forward_passes(s, out);  // the same tensors in the other direction
}

void forward_passes(const ActivationSpec& s, OpPasses& out) {
  out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const ActivationSpec& s, OpPasses& out) {
  const int tensors = s.kind == Activation::none ? 2 : 3;
  if (out.wants_gradient(0)) out.add(PassKind::activation, tensors * tensor_bytes(s.src, s.dtype));
}

void forward_passes(const AddSpec& s, OpPasses& out) { out.add(PassKind::add, 3 * tensor_bytes(s.src, s.dtype)); }
void backward_passes(const AddSpec& s, OpPasses& out) {  // one kernel copies to the sources that do not share it
  const int copies = int(out.wants_gradient(0)) + int(out.wants_gradient(1));
  if (copies > 0) out.add(PassKind::add, (1 + copies) * tensor_bytes(s.src, s.dtype));
}

void forward_passes(const DropoutSpec& s, OpPasses& out) {
  out.add(PassKind::dropout, 2 * tensor_bytes(s.src, s.dtype) + mask_bytes(s));
}
void backward_passes(const DropoutSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) forward_passes(s, out);
}

void forward_passes(const EmbeddingSpec& s, OpPasses& out) {  // each place reads one row of the table
  out.add(PassKind::embedding, tensor_bytes(s.src, s.raw) + 2 * tensor_bytes(s.dst(), s.dtype));
}
// src/cuda/kernels/tokens/token_order.hpp: a radix sort of the positions, with three kernels for each digit, and two
// kernels that find the positions of each word. Then the gradient of each word is the sum over its positions.
void backward_passes(const EmbeddingSpec& s, OpPasses& out) {
  const double positions = double(s.src.count()), token = double(size_of(s.raw)), place = 4, run = 8;
  int digits = 0;
  double sort = 0;
  for (std::int64_t rest = s.vocabulary - 1; digits == 0 || (digits < 4 && rest > 0); rest >>= 8, ++digits)
    sort += positions * (2 * token + place + (digits == 0 ? 0 : 2 * place));
  const double runs = positions * (token + place) + 3 * run * double(s.vocabulary);  // cleared, written, read
  out.add(PassKind::embedding,
          sort + runs + positions * place + tensor_bytes(s.dst(), s.dtype) +
              gradient_bytes(double(s.weight().count()), out.first),
          3 * digits + 3);
}

// src/cuda/kernels/tokens/layer_norm.cu: one kernel in each direction, and the column sums of the blocks' weight
// gradients.
void forward_passes(const LayerNormSpec& s, OpPasses& out) {
  out.add(PassKind::layer_norm, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const LayerNormSpec& s, OpPasses& out) {
  const int tensors = 2 + out.wants_gradient(0) + s.accumulates_diff_src;
  // One block a multiprocessor at least, so there are enough parts for two stages.
  const int sums = column_sum_launches(s.positions()) * (s.weight + s.bias);
  out.add(PassKind::layer_norm, tensors * tensor_bytes(s.src, s.dtype), 1 + sums);
}

void forward_passes(const PositionEmbeddingSpec& s, OpPasses& out) {
  out.add(PassKind::embedding,
          tensor_bytes(s.src, s.dtype) + tensor_bytes(s.dst(), s.dtype) + tensor_bytes(s.weight(), s.dtype));
}
void backward_passes(const PositionEmbeddingSpec& s, OpPasses& out) {
  out.add(PassKind::embedding, tensor_bytes(s.dst(), s.dtype) + gradient_bytes(double(s.weight().count()), out.first),
          column_sum_launches(s.src[0]));
  if (s.class_token) out.add(PassKind::embedding, 2.0 * double(s.channels()) * sizeof(float));
  if (out.wants_gradient(0)) out.add(PassKind::embedding, 2 * tensor_bytes(s.src, s.dtype));
}

namespace {
// src/cuda/dnn/attention.cpp: whether cuDNN computes it, on tensor cores. The kernels multiply in float32.
bool by_cudnn(const AttentionSpec& s) {
  return s.dtype != DType::f32 && s.head_size() % 8 == 0 && s.head_size() <= 256 && s.positions() > 1 && s.window == 0;
}
double one_float_for_each_query(const AttentionSpec& s) {
  return double(s.src[0] * s.heads * s.positions()) * sizeof(float);
}
double documents_bytes(const AttentionSpec& s) {
  return s.documents ? double(s.src[0] * s.positions()) * sizeof(std::int32_t) : 0;
}
}  // namespace

// Keys and values are read from the cache by all blocks but the first. A plan of cuDNN counts as one launch, as for
// convolutions. Its seeds, of two numbers, are written by a kernel. Documents are not known, so a row counts as one.
void forward_passes(const AttentionSpec& s, OpPasses& out) {
  if (s.drops() && by_cudnn(s)) out.add(PassKind::dropout, 2 * sizeof(std::int64_t));
  const double bytes = tensor_bytes(s.src, s.dtype) + tensor_bytes(s.dst(), s.dtype) + documents_bytes(s) +
                       (s.mode == Mode::train || by_cudnn(s) ? one_float_for_each_query(s) : 0);
  out.add_product(PassKind::attention, bytes, s.flops(), by_cudnn(s) ? s.dtype : DType::f32);
}
// Backward reads src, dst, diff_dst and the logarithms of the sums, and writes diff_src. cuDNN and the first kernel
// store a float for each query, which the blocks of the keys read. Of the kernels, the first computes the gradient of
// the queries, in three products, and the second those of keys and values, in four.
void backward_passes(const AttentionSpec& s, OpPasses& out) {
  if (!out.wants_gradient(0)) return;
  const double src = tensor_bytes(s.src, s.dtype), dst = tensor_bytes(s.dst(), s.dtype),
               of_queries = one_float_for_each_query(s), documents = documents_bytes(s);
  if (by_cudnn(s)) {
    out.add_product(PassKind::attention, 2 * (src + dst) + 3 * of_queries + documents, 2.5 * s.flops(), s.dtype);
    return;
  }
  out.add_product(PassKind::attention, src + 3 * dst + 2 * of_queries + documents, 1.5 * s.flops(), DType::f32);
  out.add_product(PassKind::attention, 2 * src + 2 * of_queries + documents, 2 * s.flops(), DType::f32);
}

void forward_passes(const GatedSpec& s, OpPasses& out) {
  out.add(PassKind::activation, 3 * tensor_bytes(s.dst(), s.dtype));
}
void backward_passes(const GatedSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) out.add(PassKind::activation, 5 * tensor_bytes(s.dst(), s.dtype));
}

void forward_passes(const ScaleSpec& s, OpPasses& out) {
  out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const ScaleSpec& s, OpPasses& out) {  // with the sums of the parts of the rows, in two launches
  out.add(PassKind::activation, (out.wants_gradient(0) ? 3 : 2) * tensor_bytes(s.src, s.dtype), 3);
}

void forward_passes(const RotarySpec& s, OpPasses& out) {
  out.add(PassKind::embedding, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const RotarySpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) forward_passes(s, out);
}

void forward_passes(const ConcatSpec& s, OpPasses& out) {
  out.add(PassKind::add, 2 * tensor_bytes(s.dst(), s.dtype), 2);
}
void backward_passes(const ConcatSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) out.add(PassKind::add, 2 * tensor_bytes(s.src, s.dtype));
  if (out.wants_gradient(1)) out.add(PassKind::add, 2 * tensor_bytes(s.other, s.dtype));
}

void forward_passes(const SliceSpec& s, OpPasses& out) { out.add(PassKind::add, 2 * tensor_bytes(s.dst(), s.dtype)); }
void backward_passes(const SliceSpec& s, OpPasses& out) {  // the part, and zeros before and after it
  const int launches = 1 + int(s.begin > 0) + int(s.begin + s.count < s.src[s.axis]);
  if (out.wants_gradient(0))
    out.add(PassKind::add, tensor_bytes(s.dst(), s.dtype) + tensor_bytes(s.src, s.dtype), launches);
}

void forward_passes(const UpsampleSpec& s, OpPasses& out) {
  out.add(PassKind::pool, tensor_bytes(s.src, s.dtype) + tensor_bytes(s.dst(), s.dtype));
}
void backward_passes(const UpsampleSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) forward_passes(s, out);
}

// Both values have the same memory, and so have their gradients, unless the source has a gradient of other readers too.
void backward_passes(const ReshapeSpec& s, OpPasses& out) {
  if (out.wants_gradient(0) && out.source_has_other_readers())
    out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype));
}

// src/cuda/kernels/rows/group_norm.cu: the sums of parts of the rows, their moments, and the pass over all elements.
// The gradients of gamma and beta are column sums over the rows.
void forward_passes(const GroupNormSpec& s, OpPasses& out) {
  out.add(PassKind::layer_norm, 3 * tensor_bytes(s.src, s.dtype), 3);
}
void backward_passes(const GroupNormSpec& s, OpPasses& out) {
  const int tensors = out.wants_gradient(0) ? 5 : 2;
  out.add(PassKind::layer_norm, tensors * tensor_bytes(s.src, s.dtype),
          2 + int(out.wants_gradient(0)) + (s.affine ? 2 * column_sum_launches(s.src[0]) : 0));
}

void forward_passes(const ScaleBySpec& s, OpPasses& out) {
  out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const ScaleBySpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) forward_passes(s, out);
  if (out.wants_gradient(1)) out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype), 2);
}

void forward_passes(const CrossEntropySpec& s, OpPasses& out) {
  out.add(PassKind::loss, 2 * tensor_bytes(s.src, s.dtype) + double(s.positions()) * double(sizeof(std::int32_t)), 2);
  if (s.dice > 0) out.add(PassKind::loss, 4 * tensor_bytes(s.src, s.dtype), 3);  // sums; reads and writes the gradient
}
void forward_passes(const PointwiseLossSpec& s, OpPasses& out) {
  out.add(PassKind::loss, 2 * tensor_bytes(s.src, s.dtype) + tensor_bytes(s.src, s.targets), 2);
}

// The passes of muon over its matrices: momentum, norm, matrix products, and the update of the weights. With shards,
// this rank collects the updates of each matrix of which it owns elements. Returns its elements of matrices.
static double add_muon_passes(const OptimizerSpec& s, double bytes_of_copies, std::vector<Pass>& out) {
  const auto add = [&](const char* node, double bytes, double flops, int launches) {
    out.push_back({PassKind::optimizer, Phase::update, node, bytes, flops, DType::f32, launches});
  };
  std::vector<double> own(s.segments.size());
  for (const OptimizerChunk& chunk : split_into_chunks(s).owned) own[std::size_t(chunk.segment)] += chunk.count;
  double owned = 0, values = 0, bytes = 0, flops = 0;
  int matrices = 0;
  for (std::size_t i = 0; i < s.segments.size(); ++i) {
    const OptimizerSegment& segment = s.segments[i];
    if (segment.rows == 0 || own[i] == 0) continue;
    const double elements = double(segment.count) * sizeof(float);
    const double side = double(std::min(segment.rows, segment.columns)), steps = s.newton_schulz_steps;
    const double gram = side * side * sizeof(float);
    bytes += steps * (3 * elements + 4 * gram);
    flops += steps * (4 * side * double(segment.count) + 2 * side * side * side);
    values += elements;
    owned += own[i];
    ++matrices;
  }
  if (matrices == 0) return 0;
  const bool gathers = s.gathers_updates();
  add("momentum of matrices", 4 * owned * sizeof(float), 0, gathers ? 1 : matrices);
  if (gathers) add("updates of all ranks", 2 * values, 0, matrices);
  add("norms of matrices", 2 * values, 0, matrices);
  add("Newton-Schulz steps", bytes, flops, 3 * s.newton_schulz_steps * matrices);
  add("update of matrices", owned * (3 * sizeof(float) + bytes_of_copies), 0, matrices);
  return owned;
}

// src/cuda/kernels/optimizer/optimizer.cu: the squares of the gradient, the decision, and the update of all elements.
std::vector<Pass> optimizer_passes(const OptimizerSpec& s) {
  using Kind = OptimizerSpec::Kind;
  double count = 0;
  for (const OptimizerChunk& chunk : split_into_chunks(s).owned) count += double(chunk.count);
  const double values = count * sizeof(float);
  const double weights = s.weight_dtype == DType::f32 ? 0 : count * double(size_of(s.weight_dtype));
  std::vector<Pass> out;
  const auto add = [&](const char* node, double bytes, int launches = 1) {
    out.push_back({PassKind::optimizer, Phase::update, node, bytes, 0, DType::f32, launches});
  };
  const int clears = s.shards.empty() ? 0 : 1;  // the sums of the other ranks
  const int moments = s.moment_count();
  const double average = s.average > 0 ? 2 * values : 0;
  add("squares of the gradient", values, 1 + clears);
  if (s.kind == Kind::lars) add("squares of the weights", values);
  add("decision", 0);
  if (s.kind == Kind::lamb) {
    add("moments", (2 + 2 * moments) * values, 1 + clears);
    add("trust ratios", 0);
    add("update", (2 + moments) * values + weights + average);  // reads master and moments, writes the master
  } else {
    if (s.by_segment()) add("trust ratios", 0);
    // Of an element.
    const double copies = (weights > 0 ? double(size_of(s.weight_dtype)) : 0) + (average > 0 ? 2 * sizeof(float) : 0);
    const double others = count - add_muon_passes(s, copies, out);
    add("update", others * ((3.0 + 2 * moments) * sizeof(float) + copies));
  }
  if (s.loss_positions > 0) add("weight of the loss", 2.0 * sizeof(double));
  if (s.stats_count > 0) add("running statistics", 3.0 * double(s.stats_count) * sizeof(float));
  return out;
}

}  // namespace millrace::roofline
