#include <array>

#include "cpu/common/parallel.hpp"
#include "cpu/matmul/amx_tiles.hpp"
#include "cpu/matmul/half_matmul.hpp"
#include "cpu/matmul/split_matmul.hpp"
#include "cpu/onednn/onednn.hpp"

namespace millrace::cpu::onednn {
namespace {

// Of a matrix.
std::array<std::int64_t, 2> extents_of(const desc& d) {
#if DNNL_VERSION_MAJOR < 3
  return {d.data.dims[0], d.data.dims[1]};
#else
  return {d.get_dims()[0], d.get_dims()[1]};
#endif
}
MatrixStrides strides_of(const desc& d) {
#if DNNL_VERSION_MAJOR < 3
  return {d.data.format_desc.blocking.strides[0], d.data.format_desc.blocking.strides[1]};
#else
  return {d.get_strides()[0], d.get_strides()[1]};
#endif
}
bool is(dnnl::memory::data_type type, const desc& d) {
#if DNNL_VERSION_MAJOR < 3
  return d.data_type() == type;
#else
  return d.get_data_type() == type;
#endif
}
bool is_float(const desc& d) { return is(dnnl::memory::data_type::f32, d); }

// Whether strides say where the elements are.
bool is_plain(const desc& d) {
#if DNNL_VERSION_MAJOR < 3
  return d.data.format_kind == dnnl_blocked && d.data.format_desc.blocking.inner_nblks == 0;
#else
  return d.get_format_kind() == dnnl::memory::format_kind::blocked && d.get_inner_nblks() == 0;
#endif
}

bool may_use_amx() {
  static const bool yes = has_amx() && amx::permitted();
  return yes;
}
MatmulShape shape_of(const desc& src, const desc& weight, const desc& dst) {
  const auto [rows, depth] = extents_of(src);
  return {rows, extents_of(dst)[1], depth, strides_of(src), strides_of(weight), strides_of(dst).row};
}

// The product of bf16 matrices by HalfMatmul, if it suits them; otherwise an empty call.
Call half_matmul_call(const desc& src, const desc& weight, const desc& dst, bool add) {
  constexpr auto half = dnnl::memory::data_type::bf16;
  if (!is(half, src) || !is(half, weight) || !is_float(dst) || !is_plain(weight) || !may_use_amx()) return {};
  const MatmulShape shape = shape_of(src, weight, dst);
  if (!HalfMatmul::suits(shape)) return {};
  return Call(std::make_shared<const HalfMatmul>(shape, add, thread_count()));
}

}  // namespace

bool prefers_float_matmul() {
  static const bool yes = [] {
    using enum dnnl::cpu_isa;
    const auto isa = dnnl::get_effective_cpu_isa();
#if DNNL_VERSION_MAJOR >= 3
    if (isa == avx2_vnni_2) return FloatMatmul::available();
#endif
    return (isa == avx2 || isa == avx2_vnni) && FloatMatmul::available();
  }();
  return yes;
}

const matmul::TileKernels* tile_kernels() {
  static const matmul::TileKernels* const kernels = []() -> const matmul::TileKernels* {
    if (prefers_float_matmul()) return &matmul::narrow_tiles;
#ifdef __x86_64__
    using enum dnnl::cpu_isa;
    const auto isa = dnnl::get_effective_cpu_isa();  // DNNL_MAX_CPU_ISA may exclude AVX-512
    if (isa != sse41 && isa != avx && isa != avx2 && isa != avx2_vnni && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw"))
      return &matmul::wide_tiles;
#endif
    return nullptr;
  }();
  return kernels;
}

bool has_pairs() {
#ifdef __x86_64__
  static const bool yes = [] {
    using enum dnnl::cpu_isa;
    const auto isa = dnnl::get_effective_cpu_isa();
    bool has = isa == avx512_core_bf16;
#if DNNL_VERSION_MAJOR >= 3
    has = has || isa == avx512_core_fp16;
#endif
    return has && __builtin_cpu_supports("avx512bf16");
  }();
  return yes;
#else
  return false;
#endif
}

Call matmul_call(const desc& src, const desc& weight, const desc& bias, const desc& dst, Activation activation,
                 bool add) {
  if (is_float(src) && is_float(weight) && is_float(dst) && prefers_float_matmul()) {
    return Call(std::make_shared<const FloatMatmul>(shape_of(src, weight, dst), activation, add, thread_count()));
  }
  if (activation == Activation::none && empty(bias))
    if (Call half = half_matmul_call(src, weight, dst, add)) return half;
  const auto pd = matmul(src, weight, bias, dst, activation, add);
  return Call(pd, dnnl::matmul(pd),
              {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, dst}});
}

Call split_matmul_call(const desc& src, const desc& weight, const desc& dst, Activation activation, bool add) {
  if (!may_use_amx() || !is_float(src) || !is_float(weight) || !is_float(dst)) return {};
  const MatmulShape shape = shape_of(src, weight, dst);
  if (!SplitMatmul::suits(shape)) return {};
  return Call(std::make_shared<const SplitMatmul>(shape, activation, add, thread_count()));
}

Call::Call(dnnl::primitive primitive, const std::vector<std::pair<int, desc>>& args, const desc& scratch,
           std::string name)
    : primitive_(std::move(primitive)), scratch_bytes_(scratch.get_size()), name_(std::move(name)) {
  const auto add = [this](int arg, const desc& d) {
    memory_.emplace_back(d, engine(), nullptr);
    args_.push_back({arg, memory_.back().get()});
    data_.push_back(nullptr);
  };
  for (const auto& [arg, d] : args)
    if (!empty(d)) add(arg, d);
  if (scratch_bytes_) add(DNNL_ARG_SCRATCHPAD, scratch);
}

Call::Call(std::shared_ptr<const FloatProduct> product)
    : product_(std::move(product)),
      args_{{DNNL_ARG_SRC, nullptr},
            {DNNL_ARG_WEIGHTS, nullptr},
            {DNNL_ARG_BIAS, nullptr},
            {DNNL_ARG_DST, nullptr},
            {DNNL_ARG_SCRATCHPAD, nullptr}},
      data_(args_.size()),
      scratch_bytes_(product_->scratch_bytes()),
      name_(product_->name()) {}

void Call::bind(int arg, void* data) {
  for (std::size_t i = 0; i < args_.size(); ++i) {
    if (args_[i].arg != arg || data_[i] == data) continue;
    if (!product_) memory_[i].set_data_handle(data);
    data_[i] = data;
  }
}

void Call::run() {
  if (product_)
    return product_->run(data_[0], data_[1], static_cast<const float*>(data_[2]), static_cast<float*>(data_[3]),
                         data_[4]);
  const auto status = dnnl_primitive_execute(primitive_.get(), stream().get(), int(args_.size()), args_.data());
  if (status != dnnl_success) fail(Exit::internal, "oneDNN primitive {} failed (status {})", name_, int(status));
}

}  // namespace millrace::cpu::onednn
