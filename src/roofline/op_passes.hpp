// The passes of each kind of operation. OpPasses collects those of one node.
#pragma once
#include "millrace/roofline/passes.hpp"

namespace millrace::roofline {

class OpPasses {
 public:
  OpPasses(const Graph& graph, const Node& node, bool first, const batch_norm::OnChipMemory& on_chip,
           std::vector<Pass>& out)
      : first(first), on_chip(on_chip), graph_(graph), node_(node), out_(out) {}

  Phase phase = Phase::forward;
  const bool first;  // weight gradients are written, not added to
  const batch_norm::OnChipMemory on_chip;
  GradientStores stores = {};  // of the backward pass

  void add(PassKind kind, double bytes, int launches = 1) {
    out_.push_back({kind, phase, node_.name, bytes, 0, DType::f32, launches, false});
  }
  void add_product(PassKind kind, double bytes, double flops, DType factors, bool exact = false) {
    out_.push_back({kind, phase, node_.name, bytes, flops, factors, 1, exact || kind == PassKind::attention});
  }
  // For the same node, with weight gradients that are added to.
  OpPasses adding() const {
    OpPasses out(graph_, node_, false, on_chip, out_);
    out.phase = phase;
    return out;
  }
  bool wants_gradient(std::size_t src) const {
    return src < node_.src.size() && stores[src] != GradientStore::shared &&
           graph_.values[std::size_t(node_.src[src])].needs_grad;
  }
  bool source_has_other_readers() const { return graph_.single_consumer(node_.src[0]) < 0; }

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<Pass>& out_;
};

inline double tensor_bytes(const Shape& shape, DType dtype) { return double(shape.count()) * double(size_of(dtype)); }

// Bytes of a float32 gradient that is written, or read and written if it is added to.
inline double gradient_bytes(double count, bool first) { return count * double(sizeof(float)) * (first ? 1 : 2); }

// Column sums take two launches if there are enough rows to divide them over blocks (column_sums.cu).
inline int column_sum_launches(std::int64_t rows) { return rows >= 128 ? 2 : 1; }

void forward_passes(const ConvSpec&, OpPasses&);
void forward_passes(const BatchNormSpec&, OpPasses&);
void forward_passes(const LinearSpec&, OpPasses&);
void forward_passes(const InputSpec&, OpPasses&);
void forward_passes(const PoolSpec&, OpPasses&);
void forward_passes(const ActivationSpec&, OpPasses&);
void forward_passes(const AddSpec&, OpPasses&);
void forward_passes(const DropoutSpec&, OpPasses&);
void forward_passes(const EmbeddingSpec&, OpPasses&);
void forward_passes(const LayerNormSpec&, OpPasses&);
void forward_passes(const PositionEmbeddingSpec&, OpPasses&);
void forward_passes(const AttentionSpec&, OpPasses&);
void forward_passes(const GatedSpec&, OpPasses&);
void forward_passes(const ScaleSpec&, OpPasses&);
void forward_passes(const RotarySpec&, OpPasses&);
void forward_passes(const ConcatSpec&, OpPasses&);
void forward_passes(const SliceSpec&, OpPasses&);
void forward_passes(const UpsampleSpec&, OpPasses&);
void forward_passes(const TransposedConvSpec&, OpPasses&);
void forward_passes(const GroupNormSpec&, OpPasses&);
void forward_passes(const ScaleBySpec&, OpPasses&);
void forward_passes(const GatherSpec&, OpPasses&);
void forward_passes(const AffineSpec&, OpPasses&);
void forward_passes(const PowerSpec&, OpPasses&);
void forward_passes(const PreluSpec&, OpPasses&);
void forward_passes(const IndexedBiasSpec&, OpPasses&);
void forward_passes(const SoftmaxSpec&, OpPasses&);
void forward_passes(const BatchedMatmulSpec&, OpPasses&);
void forward_passes(const RecurrentSpec&, OpPasses&);
inline void forward_passes(const ReshapeSpec&, OpPasses&) {}
void forward_passes(const MoveLabelsSpec&, OpPasses&);
void forward_passes(const MixSpec&, OpPasses&);
void forward_passes(const DocumentsSpec&, OpPasses&);
void forward_passes(const CrossEntropySpec&, OpPasses&);
void forward_passes(const PointwiseLossSpec&, OpPasses&);
void forward_passes(const LinearCrossEntropySpec&, OpPasses&);

void backward_passes(const ConvSpec&, OpPasses&);
void backward_passes(const BatchNormSpec&, OpPasses&);
void backward_passes(const LinearSpec&, OpPasses&);
void backward_passes(const PoolSpec&, OpPasses&);
void backward_passes(const ActivationSpec&, OpPasses&);
void backward_passes(const AddSpec&, OpPasses&);
void backward_passes(const DropoutSpec&, OpPasses&);
void backward_passes(const EmbeddingSpec&, OpPasses&);
void backward_passes(const LayerNormSpec&, OpPasses&);
void backward_passes(const PositionEmbeddingSpec&, OpPasses&);
void backward_passes(const AttentionSpec&, OpPasses&);
void backward_passes(const GatedSpec&, OpPasses&);
void backward_passes(const ScaleSpec&, OpPasses&);
void backward_passes(const RotarySpec&, OpPasses&);
void backward_passes(const ConcatSpec&, OpPasses&);
void backward_passes(const SliceSpec&, OpPasses&);
void backward_passes(const UpsampleSpec&, OpPasses&);
void backward_passes(const TransposedConvSpec&, OpPasses&);
void backward_passes(const GroupNormSpec&, OpPasses&);
void backward_passes(const ScaleBySpec&, OpPasses&);
void backward_passes(const GatherSpec&, OpPasses&);
void backward_passes(const AffineSpec&, OpPasses&);
void backward_passes(const PowerSpec&, OpPasses&);
void backward_passes(const PreluSpec&, OpPasses&);
void backward_passes(const IndexedBiasSpec&, OpPasses&);
void backward_passes(const SoftmaxSpec&, OpPasses&);
void backward_passes(const BatchedMatmulSpec&, OpPasses&);
void backward_passes(const RecurrentSpec&, OpPasses&);
void backward_passes(const ReshapeSpec&, OpPasses&);
inline void backward_passes(const InputSpec&, OpPasses&) {}
inline void backward_passes(const MoveLabelsSpec&, OpPasses&) {}
inline void backward_passes(const MixSpec&, OpPasses&) {}
inline void backward_passes(const DocumentsSpec&, OpPasses&) {}
inline void backward_passes(const CrossEntropySpec&, OpPasses&) {}  // the forward pass writes the gradient
inline void backward_passes(const LinearCrossEntropySpec&, OpPasses&) {}
inline void backward_passes(const PointwiseLossSpec&, OpPasses&) {}

void weight_copies(const ConvSpec&, OpPasses&);
void weight_copies(const LinearSpec&, OpPasses&);
inline void weight_copies(const TransposedConvSpec& s, OpPasses& out) { weight_copies(s.conv(), out); }
inline void weight_copies(const LinearCrossEntropySpec& s, OpPasses& out) { weight_copies(s.linear, out); }
template <class Other>
void weight_copies(const Other&, OpPasses&) {}

}  // namespace millrace::roofline
