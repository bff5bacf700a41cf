// Op: one prepared operation. A Backend makes it from a Spec; only this step may allocate or fail. Afterwards,
// forward(), backward() and repack() only enqueue work on the compute stream. The header of each Spec describes its
// src, dst, weight, saved and stats.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "millrace/base/error.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/device/tensor.hpp"

namespace millrace {

class RankExchange;

enum class Mode { train, infer };
// gelu: the exact function, x * Phi(x). gelu_tanh: the approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
// of Hendrycks & Gimpel 2016, the only form that some libraries have. silu: x * sigmoid(x). leaky_relu: 0.01 x for
// x < 0. elu: e^x - 1 for x < 0. relu6: min(max(x, 0), 6). hardsigmoid: min(max(x + 3, 0), 6) / 6. hardswish: x *
// hardsigmoid(x). The constants are PyTorch's defaults.
enum class Activation {
  none,
  relu,
  gelu,
  gelu_tanh,
  tanh,
  silu,
  sigmoid,
  leaky_relu,
  elu,
  relu6,
  hardsigmoid,
  hardswish
};

struct ActivationTraits {
  Activation kind;
  const char* name;         // in configurations
  bool backward_reads_src;  // the slope is computed from the argument of the function; otherwise from its result
};
// All activations. A slope that is a simple function of the result should be computed from it, because the argument
// then need not be kept.
inline constexpr ActivationTraits activations[] = {
    {Activation::none, "none", false},
    {Activation::relu, "relu", false},
    {Activation::gelu, "gelu", true},
    {Activation::gelu_tanh, "gelu_tanh", true},
    {Activation::tanh, "tanh", false},
    {Activation::silu, "silu", true},
    {Activation::sigmoid, "sigmoid", false},
    {Activation::leaky_relu, "leaky_relu", false},
    {Activation::elu, "elu", false},
    {Activation::relu6, "relu6", false},
    {Activation::hardsigmoid, "hardsigmoid", true},  // in 16 bits, results near 1 are rounded to 1
    {Activation::hardswish, "hardswish", true}};
constexpr const ActivationTraits& traits_of(Activation kind) {
  for (const ActivationTraits& a : activations)
    if (a.kind == kind) return a;
  fail(Exit::internal, "internal error: an activation has no row in the table of ops/op.hpp");
}
constexpr bool backward_reads_src(Activation kind) { return traits_of(kind).backward_reads_src; }
constexpr const char* name_of(Activation kind) { return traits_of(kind).name; }
// The activation with this name, other than none. Null: there is none.
const ActivationTraits* find_activation(std::string_view name);
// The names of all activations but none, "relu, gelu, ...".
std::string activation_names();
// Error(config) if no activation has this name.
Activation activation_from(std::string_view name);

// How a parameter gradient is stored. The first operation that computes a gradient in the first micro-batch writes it,
// so that it needs no zero-fill; all later ones add to it.
enum class GradMode { write, add };

// Bytes that the memory plan must reserve for one operation. All regions are aligned to 64 bytes.
struct MemoryRequirements {
  std::size_t workspace = 0;  // scratch memory during one call, shared by all operations
  std::size_t saved = 0;      // kept from forward to backward of a micro-batch (masks, argmax, batch mean and 1/std)
  std::size_t packed_weights = 0;  // copies of the weights in a layout of the backend, filled by repack()
  std::size_t cache = 0;           // kept between calls (AttentionSpec::window); need not be zero at first
};

struct OpArgs {
  static constexpr int max_src = 3, max_weight = 8;
  std::array<Tensor, max_src> src;  // activations in the precision of the program
  Tensor dst;
  std::array<Tensor, max_src> diff_src;  // overwritten, unless the Spec accumulates; null data: not requested
  Tensor diff_dst;
  std::array<Tensor, max_weight> weight;       // in the dtype that the header of the Spec states
  std::array<Tensor, max_weight> diff_weight;  // float32, views of the flat gradient; null: not requested (frozen)
  std::array<GradMode, max_weight> mode{};
  Tensor stats;           // float32 sums for running statistics (batch norm); null otherwise
  Tensor residual_stats;  // the same for the norm of the residual
  GradMode stats_mode = GradMode::write;
  // Values that a batch norm shares with the convolutions around it at fusion level 2, float32 (2, channels); null
  // otherwise. x is the source of the norm, and g the gradient of its result, after the gradient of the activation.
  // Sums of x and of x^2. (4, channels), of which backends that sum in double use the last two for what rounding to
  // float32 cuts off.
  Tensor sums;
  Tensor residual_sums;  // the same for the norm of the residual
  Tensor moments;        // batch mean and 1/std
  Tensor diff_sums;      // sums of g * (x - mean) / std and of g: the gradients of gamma and beta
  Tensor norm_src;       // x itself, in the precision of the program, for the convolution that computes diff_sums
  // Fusion level 3, (2, channels) in the precision of the program: scale and bias of a norm, whose result is
  // act(scale * x + bias). The convolution behind it computes that itself, on the CPU from the moments. Null otherwise.
  Tensor affine;
  // Fusion level 3, float32 (4, channels): mean, gamma/std, mean of g, and slope of g over x - mean, from which the
  // convolution before a norm computes the gradient of x. Null otherwise.
  Tensor diff_affine;
  // Values that a linear layer shares with the next or the previous one at fusion level 2; null otherwise. Both bias
  // gradients are in the precision of the program.
  Tensor diff_bias;                 // (out): gradient of the bias of this layer, computed by the next layer
  Tensor src_diff_bias;             // (in): gradient of the bias of the previous layer, computed by this layer
  const void* src_saved = nullptr;  // `saved` of the previous layer
  void* saved = nullptr;
  void* packed_weights = nullptr;
  void* workspace = nullptr;
  void* cache = nullptr;
  StepState* state = nullptr;
  void* metrics = nullptr;  // losses in Mode::infer: see loss.hpp. null: not requested
  // For batch norms that are synchronised over the ranks; null: only this rank counts. without_rows: this rank has no
  // micro-batch, so forward and backward only take part in the exchange.
  RankExchange* ranks = nullptr;
  bool without_rows = false;
};

// The share of the operations of a Cost that are executed: below 1 if an algorithm needs fewer of them. Operations of a
// slower type than the Spec's count as so many of its type as would take as long.
struct WorkShare {
  double forward = 1, backward = 1;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual MemoryRequirements memory_requirements() const = 0;
  virtual void forward(const OpArgs&) = 0;
  virtual void backward(const OpArgs&) = 0;
  virtual void repack(const OpArgs&) {}  // fills packed_weights from weight; called after each change of the weights
  virtual std::string implementation() const = 0;  // shown by plan and bench: "onednn brgconv:avx512_core"
  virtual WorkShare work_share() const { return {}; }
  // dst is a copy of src[0], and backward() does nothing. A caller may leave out forward(), and give src[0] to the
  // readers of dst.
  virtual bool is_copy() const { return false; }
};

}  // namespace millrace
