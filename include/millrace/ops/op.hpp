// Op: one prepared operation. Made from a Spec by a Backend (this may fail and allocate); afterwards forward, backward
// and refresh only enqueue work on the compute lane. Every Spec's header says what src, dst, weight, saved and stats
// mean for it.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include "millrace/device/step_state.hpp"
#include "millrace/device/tensor.hpp"

namespace millrace {

enum class Mode { train, infer };
// gelu: the exact one, x * Phi(x). gelu_tanh: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), which is all of gelu
// that some libraries know (Hendrycks & Gimpel 2016).
enum class Activation { none, relu, gelu, gelu_tanh, tanh };
// Backward reads what the function was taken of, not its result.
inline bool backward_reads_src(Activation kind) { return kind == Activation::gelu || kind == Activation::gelu_tanh; }
const char* name_of(Activation);
Activation activation_from(std::string_view name);

// How a parameter gradient meets memory: write (first toucher in the first micro-batch, so no zero-fill pass) or add
// (all others).
enum class GradMode { write, add };

// Bytes that the memory plan must reserve for one op. All regions are 64-byte aligned.
struct MemoryRequirements {
  std::size_t workspace = 0;  // scratch during one call, shared by all ops
  std::size_t saved = 0;  // kept from forward to backward of the same micro-batch (masks, argmax, batch mean and 1/std)
  std::size_t packed_weights = 0;  // weight copies in the backend's own layout, filled by refresh()
};

struct OpArgs {
  static constexpr int max_src = 3, max_weight = 4;
  std::array<Tensor, max_src> src;  // activations in the program's precision
  Tensor dst;
  std::array<Tensor, max_src> diff_src;        // null data: this gradient is not wanted
  Tensor diff_dst;                             // activation gradients are written, never added to
  std::array<Tensor, max_weight> weight;       // in the dtype the Spec's header names
  std::array<Tensor, max_weight> diff_weight;  // float32, views of the flat gradient; null: not wanted (frozen)
  std::array<GradMode, max_weight> mode{};
  Tensor stats;  // float32 sums for running statistics (batch norm); null otherwise
  GradMode stats_mode = GradMode::write;
  // What a batch norm shares with the convolutions around it (fusion level 2): float32 (2, channels); null otherwise.
  Tensor sums;       // of the values that are normalised, and of their squares
  Tensor moments;    // batch mean, 1/std
  Tensor diff_sums;  // of g * (x - mean) / std and of g, the gradient behind the norm: those of gamma and beta
  Tensor norm_src;   // x, for the convolution that makes diff_sums
  // What a linear layer shares with the one behind it (fusion level 2); null otherwise. Gradients of a bias in the
  // program's precision: (out) of this layer, made behind it, and (in) of the layer before, made here.
  Tensor diff_bias, src_diff_bias;
  const void* src_saved = nullptr;  // `saved` of the layer before
  void* saved = nullptr;
  void* packed_weights = nullptr;
  void* workspace = nullptr;
  StepState* state = nullptr;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual MemoryRequirements memory_requirements() const = 0;
  virtual void forward(const OpArgs&) = 0;
  virtual void backward(const OpArgs&) = 0;
  virtual void repack(const OpArgs&) {}            // after an optimizer step: weight -> derived
  virtual std::string implementation() const = 0;  // what runs, for plan and bench: "onednn brgconv:avx512_core"
};

}  // namespace millrace
