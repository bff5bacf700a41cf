// oneDNN as the CPU's operations use it. onednn.cpp is the one file where releases 2 (Debian 12) and 3 (Debian 13)
// differ.
#pragma once
#include <dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/types.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cpu::onednn {

using dims = dnnl::memory::dims;
using desc = dnnl::memory::desc;

dnnl::engine& engine();  // one a process
dnnl::stream& stream();  // one a thread; execution is immediate
bool has_bf16();         // this processor and release compute in bf16 (AVX-512 and up)
std::string isa_name();  // what oneDNN dispatches to: "AVX2", "AMX (bf16)"
dnnl::memory::data_type type_of(DType);
dnnl::algorithm algorithm_of(Activation,
                             bool from_dst = false);  // from_dst: for backward of relu and tanh, from the result

// Plain row-major over dims; with `any` the primitive chooses the layout.
desc plain(const dims&, DType);
desc strided(const dims&, DType, const dims& strides);
desc any(const dims&, DType);

// Descriptors of primitives: attributes with user scratchpad, so that scratch is part of the plan. They throw
// dnnl::error when there is no implementation.
struct ConvShape {
  desc src, weight, bias, dst;  // bias: a zero descriptor when there is none
  dims stride, dilation, pad;   // oneDNN's dilation: 0 is dense
};
using ConvForward = dnnl::convolution_forward::primitive_desc;
using ConvBackwardData = dnnl::convolution_backward_data::primitive_desc;
using ConvBackwardWeights = dnnl::convolution_backward_weights::primitive_desc;
ConvForward conv_forward(const ConvShape&, Mode);
ConvBackwardData conv_backward_data(const ConvShape&, const ConvForward& hint);
ConvBackwardWeights conv_backward_weights(const ConvShape&,
                                          const ConvForward& hint);  // src, dst and weight are the gradients' twins

// dst = activation(src * weight + bias), or dst += src * weight when add.
dnnl::matmul::primitive_desc matmul(const desc& src, const desc& weight, const desc& bias, const desc& dst,
                                    Activation = Activation::none, bool add = false);
dnnl::eltwise_forward::primitive_desc eltwise_forward(dnnl::algorithm, const desc& data, Mode);
// `data` is src, or dst for a from_dst algorithm.
dnnl::eltwise_backward::primitive_desc eltwise_backward(dnnl::algorithm, const desc& data,
                                                        const dnnl::eltwise_forward::primitive_desc&);
dnnl::reorder::primitive_desc reorder(const desc& from, const desc& to, bool add = false);

// A prepared call: a primitive with its arguments. Their memory is bound before run(); neither allocates.
class Call {
 public:
  Call() = default;
  // Arguments by DNNL_ARG_ number; the scratchpad joins when the primitive wants one.
  template <class PrimitiveDesc>
  Call(const PrimitiveDesc& pd, dnnl::primitive primitive, const std::vector<std::pair<int, desc>>& args)
      : Call(std::move(primitive), args, pd.scratchpad_desc(), pd.impl_info_str()) {}

  explicit operator bool() const { return bool(primitive_); }
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  const std::string& name() const { return name_; }  // oneDNN's: "brgconv:avx512_core_amx_bf16"
  void bind(int arg, void* data);
  void bind_scratch(void* data) {
    if (scratch_bytes_) bind(DNNL_ARG_SCRATCHPAD, data);
  }
  void run();

 private:
  Call(dnnl::primitive, const std::vector<std::pair<int, desc>>&, const desc& scratch, std::string name);
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memory_;  // owners of args_' handles
  std::vector<dnnl_exec_arg_t> args_;
  std::vector<void*> data_;
  std::size_t scratch_bytes_ = 0;
  std::string name_;
};

// Runs make() and turns oneDNN's exception into Error(config) naming `what`.
template <class Make>
decltype(auto) checked(const std::string& what, const Make& make) {
  try {
    return make();
  } catch (const dnnl::error& e) {
    fail(Exit::config, what, ": oneDNN cannot do it (", e.what(), "). another precision or shape may work");
  }
}

}  // namespace millrace::cpu::onednn
