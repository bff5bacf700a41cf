#include <fmt/core.h>

#include <limits>
#include <type_traits>

#include "millrace/base/error.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

const ActivationTraits* find_activation(std::string_view name) {
  for (const ActivationTraits& a : activations)
    if (a.kind != Activation::none && name == a.name) return &a;
  return nullptr;
}

std::string activation_names() {
  std::string names;
  for (const ActivationTraits& a : activations)
    if (a.kind != Activation::none) names += fmt::format("{}{}", names.empty() ? "" : ", ", a.name);
  return names;
}

Activation activation_from(std::string_view name) {
  if (name == name_of(Activation::none)) return Activation::none;
  if (const auto* found = find_activation(name)) return found->kind;
  fail(Exit::config, "unknown activation '{}'. use none or one of {}", name, activation_names());
}

namespace {
struct Name {
  const char* operator()(const ConvSpec&) const { return "conv"; }
  const char* operator()(const LinearSpec&) const { return "linear"; }
  const char* operator()(const BatchNormSpec&) const { return "batch_norm"; }
  const char* operator()(const PoolSpec&) const { return "pool"; }
  const char* operator()(const ActivationSpec&) const { return "activation"; }
  const char* operator()(const AddSpec&) const { return "add"; }
  const char* operator()(const DropoutSpec&) const { return "dropout"; }
  const char* operator()(const InputSpec&) const { return "input"; }
  const char* operator()(const CrossEntropySpec&) const { return "cross_entropy"; }
  const char* operator()(const PointwiseLossSpec& s) const { return name_of(s.kind); }
  const char* operator()(const LinearCrossEntropySpec&) const { return "linear_loss"; }
  const char* operator()(const EmbeddingSpec&) const { return "embedding"; }
  const char* operator()(const PositionEmbeddingSpec&) const { return "position_embedding"; }
  const char* operator()(const AttentionSpec&) const { return "attention"; }
  const char* operator()(const GatedSpec&) const { return "gated"; }
  const char* operator()(const ScaleSpec&) const { return "scale"; }
  const char* operator()(const RotarySpec&) const { return "rotary"; }
  const char* operator()(const ConcatSpec&) const { return "concat"; }
  const char* operator()(const SliceSpec&) const { return "slice"; }
  const char* operator()(const UpsampleSpec&) const { return "upsample"; }
  const char* operator()(const TransposedConvSpec&) const { return "transposed_conv"; }
  const char* operator()(const GroupNormSpec&) const { return "group_norm"; }
  const char* operator()(const ScaleBySpec&) const { return "scale_by"; }
  const char* operator()(const ReshapeSpec&) const { return "reshape"; }
  const char* operator()(const MoveLabelsSpec&) const { return "move_labels"; }
  const char* operator()(const MixSpec&) const { return "mix"; }
  const char* operator()(const DocumentsSpec&) const { return "documents"; }
  const char* operator()(const GatherSpec&) const { return "gather"; }
  const char* operator()(const AffineSpec&) const { return "affine"; }
  const char* operator()(const PowerSpec&) const { return "power"; }
  const char* operator()(const PreluSpec&) const { return "prelu"; }
  const char* operator()(const IndexedBiasSpec&) const { return "indexed_bias"; }
  const char* operator()(const SoftmaxSpec&) const { return "softmax"; }
  const char* operator()(const BatchedMatmulSpec&) const { return "matmul"; }
  const char* operator()(const RecurrentSpec& s) const {
    return s.plain() ? "rnn" : s.kind == RecurrentSpec::Kind::gru ? "gru" : "lstm";
  }
  const char* operator()(const LayerNormSpec& s) const {
    return s.kind == LayerNormSpec::Kind::rms ? "rms_norm" : "layer_norm";
  }
};
}  // namespace

const char* name_of(const Spec& spec) { return std::visit(Name{}, spec); }

double flops_of(const Spec& spec) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.flops(); }) return s.flops();
        return 0.0;
      },
      spec);
}

namespace {

double size_of_tensor(const Shape& shape, DType dtype) { return double(shape.count()) * double(size_of(dtype)); }

struct Forward {
  Cost operator()(const ConvSpec& s) const {
    return {s.flops(),
            size_of_tensor(s.src, s.dtype) + size_of_tensor(s.weight(), s.dtype) + size_of_tensor(s.dst(), s.dtype)};
  }
  Cost operator()(const LinearSpec& s) const {
    return {s.flops(),
            size_of_tensor(s.src, s.dtype) + size_of_tensor(s.weight(), s.dtype) + size_of_tensor(s.dst(), s.dtype)};
  }
  Cost operator()(const TransposedConvSpec& s) const { return (*this)(s.conv()); }
  Cost operator()(const GroupNormSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const ReshapeSpec&) const { return {}; }
  Cost operator()(const BatchNormSpec& s) const {
    const int statistics =
        s.mode == Mode::infer ? 0 : !s.consumes_sums + (s.residual_norm && !s.consumes_residual_sums);
    const double results = (s.pool && s.mode == Mode::train ? 2 : 1) * size_of_tensor(s.dst(), s.dtype);  // and maxima
    const double apply = s.produces_affine ? 0 : (1 + s.residual) * size_of_tensor(s.src, s.dtype) + results;
    return {0, statistics * size_of_tensor(s.src, s.dtype) + apply};
  }
  Cost operator()(const InputSpec& s) const {
    return {0, size_of_tensor(s.src, s.raw) + size_of_tensor(s.dst(), s.dtype)};
  }
  Cost operator()(const AddSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const MixSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const DocumentsSpec& s) const {
    return {0, size_of_tensor(s.src, s.raw) + size_of_tensor(s.dst(), s.dtype)};
  }
  Cost operator()(const CrossEntropySpec& s) const {
    return {0, (s.dice > 0 ? 6 : 2) * size_of_tensor(s.src, s.dtype)};
  }
  Cost operator()(const PointwiseLossSpec& s) const {
    return {0, 2 * size_of_tensor(s.src, s.dtype) + size_of_tensor(s.src, s.targets)};
  }
  Cost operator()(const AttentionSpec& s) const {
    const double documents = s.documents ? double(s.src[0] * s.positions()) * sizeof(std::int32_t) : 0;
    const Shape cache{s.src[0], s.window, 2 * s.key_heads * s.head_size()};
    return {s.flops(), size_of_tensor(s.src, s.dtype) + size_of_tensor(s.dst(), s.dtype) + documents +
                           size_of_tensor(cache, s.dtype)};
  }
  Cost operator()(const ConcatSpec& s) const { return {0, 2 * size_of_tensor(s.dst(), s.dtype)}; }
  Cost operator()(const SliceSpec& s) const { return {0, 2 * size_of_tensor(s.dst(), s.dtype)}; }
  Cost operator()(const BatchedMatmulSpec& s) const {
    return {s.flops(), double(s.batch) * double(s.m * s.k + s.k * s.n + s.m * s.n) * double(size_of(s.dtype))};
  }
  // The products with the inputs are written and read.
  Cost operator()(const RecurrentSpec& s) const {
    const Shape gates{s.rows() * s.steps(), s.width()};
    return {s.flops(), size_of_tensor(s.src, s.dtype) + size_of_tensor(s.weight_ih(), s.dtype) +
                           size_of_tensor(s.weight_hh(), s.dtype) + 2 * size_of_tensor(gates, DType::f32) +
                           size_of_tensor(s.dst(), s.dtype)};
  }
  Cost operator()(const EmbeddingSpec& s) const {
    return {0, size_of_tensor(s.src, s.raw) + 2 * size_of_tensor(s.dst(), s.dtype)};
  }
  Cost operator()(const LinearCrossEntropySpec&) const { return {}; }  // forward_cost() has it
  template <class Rest>                                                // one tensor in, one out
  Cost operator()(const Rest& s) const {
    return {0, size_of_tensor(s.src, s.dtype) + size_of_tensor(s.dst(), s.dtype)};
  }
};

struct Backward {
  Cost operator()(const LinearCrossEntropySpec&) const { return {}; }  // done by forward
  Cost operator()(const ConvSpec& s) const {
    Cost cost = product(s);
    if (s.normalises_diff_dst) {  // chunk by chunk: source and result of the convolution, and their gradients, once
      cost.bytes = 2 * (size_of_tensor(s.src, s.dtype) + size_of_tensor(s.dst(), s.dtype));
      return cost;
    }
    // The source of the norm before it, or the gradient that it adds to.
    if (s.produces_diff_sums || s.accumulates_diff_src) cost.bytes += size_of_tensor(s.src, s.dtype);
    return cost;
  }
  Cost operator()(const LinearSpec& s) const {
    Cost cost = product(s);
    if (s.accumulates_diff_src) cost.bytes += size_of_tensor(s.src, s.dtype);
    return cost;
  }
  Cost operator()(const BatchNormSpec& s) const {
    if (s.produces_diff_affine) return {};
    if (s.pool) return {0, 2 * size_of_tensor(s.src, s.dtype) + 3 * size_of_tensor(s.dst(), s.dtype)};
    return {0, ((s.consumes_diff_sums ? 3 : 5) + s.residual + 2 * s.residual_norm) * size_of_tensor(s.src, s.dtype)};
  }
  Cost operator()(const InputSpec&) const { return {}; }
  Cost operator()(const MoveLabelsSpec&) const { return {}; }
  Cost operator()(const MixSpec&) const { return {}; }
  Cost operator()(const DocumentsSpec&) const { return {}; }
  Cost operator()(const CrossEntropySpec&) const { return {}; }  // done by forward
  Cost operator()(const PointwiseLossSpec&) const { return {}; }
  Cost operator()(const EmbeddingSpec& s) const {
    return {0,
            size_of_tensor(s.src, s.raw) + size_of_tensor(s.dst(), s.dtype) + size_of_tensor(s.weight(), DType::f32)};
  }
  Cost operator()(const AddSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const ActivationSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  // The scores are computed again: five products instead of two. Both tensors and their gradients.
  Cost operator()(const AttentionSpec& s) const { return {2.5 * s.flops(), 2 * Forward{}(s).bytes}; }
  Cost operator()(const GatedSpec& s) const { return {0, 5 * size_of_tensor(s.dst(), s.dtype)}; }
  Cost operator()(const ScaleSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const SliceSpec& s) const {
    return {0, size_of_tensor(s.src, s.dtype) + size_of_tensor(s.dst(), s.dtype)};
  }
  Cost operator()(const LayerNormSpec& s) const {
    return {0, (3 + s.accumulates_diff_src) * size_of_tensor(s.src, s.dtype)};
  }
  Cost operator()(const TransposedConvSpec& s) const { return product(s.conv()); }
  Cost operator()(const GroupNormSpec& s) const { return {0, 5 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const PowerSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const SoftmaxSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const PreluSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const IndexedBiasSpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  Cost operator()(const BatchedMatmulSpec& s) const { return {2 * s.flops(), 2 * Forward{}(s).bytes}; }
  Cost operator()(const RecurrentSpec& s) const {
    const double of_inputs = s.need_diff_src ? 0 : s.flops() * double(s.features()) / double(s.features() + s.units);
    return {2 * s.flops() - of_inputs, 2 * Forward{}(s).bytes};
  }
  Cost operator()(const ScaleBySpec& s) const { return {0, 3 * size_of_tensor(s.src, s.dtype)}; }
  template <class Rest>
  Cost operator()(const Rest& s) const {
    return Forward{}(s);
  }

 private:
  template <class Product>  // gradients of the weight (float32) and, if needed, of the source
  Cost product(const Product& s) const {
    Cost cost{s.flops(), size_of_tensor(s.src, s.dtype) + size_of_tensor(s.dst(), s.dtype) +
                             size_of_tensor(s.weight(), DType::f32)};
    if (s.need_diff_src) {
      cost.flops += s.flops();
      cost.bytes += Forward{}(s).bytes;
    }
    return cost;
  }
};

}  // namespace

bool keeps_src(const Spec& spec) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.keeps_src(); })
          return s.keeps_src();
        else
          return s.keeps_src;
      },
      spec);
}

bool keeps_dst(const Spec& spec) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.keeps_dst(); })
          return s.keeps_dst();
        else
          return s.keeps_dst;
      },
      spec);
}

Cost forward_cost(const Spec& spec) {
  const auto* chunked = std::get_if<LinearCrossEntropySpec>(&spec);
  if (!chunked) return std::visit(Forward{}, spec);
  Cost cost = Forward{}(chunked->linear);
  const auto add = [&](const Cost& more) {
    cost.flops += more.flops;
    cost.bytes += more.bytes;
  };
  add(Forward{}(chunked->loss));
  if (chunked->loss.mode == Mode::train) add(Backward{}(chunked->linear));
  return cost;
}
Cost backward_cost(const Spec& spec) { return std::visit(Backward{}, spec); }

}  // namespace millrace
