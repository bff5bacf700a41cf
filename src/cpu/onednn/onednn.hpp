// A thin interface to oneDNN for the operations of the CPU. Only onednn.cpp and call.cpp have code for the differences
// between oneDNN 2 (Debian 12) and oneDNN 3 (Debian 13).
#pragma once
#include <dnnl.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpu/matmul/tile_product.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/types.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cpu::onednn {

using dims = dnnl::memory::dims;
using desc = dnnl::memory::desc;

dnnl::engine& engine();  // one per process
dnnl::stream& stream();  // one per thread; primitives have finished when their call returns
bool has_bf16();         // whether this processor and this release compute in bf16 (needs AVX-512 or AMX)
bool has_amx();          // whether they compute in bf16 on AMX; DNNL_MAX_CPU_ISA may exclude it
std::string isa_name();  // the instruction set that oneDNN uses: "AVX2", "AMX (bf16)"
dnnl::memory::data_type type_of(DType);  // Error(config) for types that are not f32, bf16 or f16
// Memory descriptors. plain: row-major without gaps. strided: with the given strides. any: the primitive chooses the
// layout.
desc plain(const dims&, DType);
desc strided(const dims&, DType, const dims& strides);
desc any(const dims&, DType);
inline bool empty(const desc& d) { return d.get_size() == 0; }

// Descriptors of primitives. Their scratchpad is provided by the user, so that the memory plan includes it. The
// functions throw dnnl::error if oneDNN has no implementation.
struct ConvShape {
  desc src, weight, bias, dst;  // bias is a zero descriptor if there is none
  dims stride, dilation, pad;   // dilation counts from 0 (dense), as in oneDNN
};
using ConvForward = dnnl::convolution_forward::primitive_desc;
using ConvBackwardData = dnnl::convolution_backward_data::primitive_desc;
using ConvBackwardWeights = dnnl::convolution_backward_weights::primitive_desc;
ConvForward conv_forward(const ConvShape&, Mode);
ConvBackwardData conv_backward_data(const ConvShape&, const ConvForward& hint);
// weight and bias of the ConvShape describe the gradients.
ConvBackwardWeights conv_backward_weights(const ConvShape&, const ConvForward& hint);

// dst = activation(src * weight + bias), or dst += src * weight if add.
dnnl::matmul::primitive_desc matmul(const desc& src, const desc& weight, const desc& bias, const desc& dst,
                                    Activation = Activation::none, bool add = false);
dnnl::reorder::primitive_desc reorder(const desc& from, const desc& to, bool add = false);

// A primitive of oneDNN, or a FloatProduct, with its arguments. bind() sets the memory of an argument before run().
// Neither function allocates.
class Call {
 public:
  Call() = default;
  // args: pairs of a DNNL_ARG_ number and a descriptor. The scratchpad is added if the primitive needs one.
  template <class PrimitiveDesc>
  Call(const PrimitiveDesc& pd, dnnl::primitive primitive, const std::vector<std::pair<int, desc>>& args)
      : Call(std::move(primitive), args, pd.scratchpad_desc(), pd.impl_info_str()) {}

  // Arguments: SRC, WEIGHTS, BIAS, DST.
  explicit Call(std::shared_ptr<const FloatProduct>);

  explicit operator bool() const { return bool(primitive_) || product_; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  const std::string& name() const { return name_; }  // the implementation in oneDNN: "brgconv:avx512_core_amx_bf16"
  std::string full_name() const { return (product_ ? "" : "onednn ") + name_; }
  void bind(int arg, void* data);
  void bind_scratch(void* data) {
    if (scratch_bytes_) bind(DNNL_ARG_SCRATCHPAD, data);
  }
  void run();

 private:
  Call(dnnl::primitive, const std::vector<std::pair<int, desc>>&, const desc& scratch, std::string name);
  dnnl::primitive primitive_;
  std::shared_ptr<const FloatProduct> product_;  // used instead, if there is one
  std::vector<dnnl::memory> memory_;             // owns the handles in args_
  std::vector<dnnl_exec_arg_t> args_;
  std::vector<void*> data_;
  std::size_t scratch_bytes_ = 0;
  std::string name_;
};

// Whether products of float32 matrices run with FloatMatmul: on processors for which oneDNN has no AVX-512.
bool prefers_float_matmul();
// For small products of float32 matrices within an operation; null: this processor has neither AVX2 nor AVX-512, or
// oneDNN may not use them.
const matmul::TileKernels* tile_kernels();
// Whether the processor multiplies pairs of bf16 with AVX-512, and oneDNN may use that but no AMX. Small products then
// run with multiply_pairs().
bool has_pairs();
// dst = activation(src * weight + bias), or dst += src * weight if add, with weights in the layout that is given. By
// FloatMatmul or HalfMatmul where they are faster, otherwise by oneDNN.
Call matmul_call(const desc& src, const desc& weight, const desc& bias, const desc& dst, Activation = Activation::none,
                 bool add = false);

// The same for float32 matrices by products of bf16 on AMX, if the processor has it and the shape suits; otherwise
// empty. The weights may have any strides.
Call split_matmul_call(const desc& src, const desc& weight, const desc& dst, Activation = Activation::none,
                       bool add = false);

// Returns make(). Converts an exception of oneDNN to Error(config), whose message names `what`.
template <class Make>
decltype(auto) checked(const std::string& what, const Make& make) {
  try {
    return make();
  } catch (const dnnl::error& e) {
    fail(Exit::config, "{}: not supported by oneDNN ({}). try another precision or shape", what, e.what());
  }
}

}  // namespace millrace::cpu::onednn
