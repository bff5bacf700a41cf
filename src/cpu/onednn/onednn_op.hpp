// Helpers for operations that use oneDNN: calls with a scratchpad, weights in layouts of oneDNN, and the choice between
// native and emulated 16 bits.
#pragma once
#include "cpu/common/half.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn.hpp"

namespace millrace::cpu {

inline void* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

// Runs a call with the scratchpad at the beginning of the workspace, where every op has it.
inline void run(onednn::Call& call, const OpArgs& args) {
  call.bind_scratch(args.workspace);
  call.run();
}

// A copy of weight[0], or of the part of it that begins after `skip` bytes, in the layout that a primitive requires.
// The copy is in packed_weights, and repack() fills it. If the primitive uses the canonical layout, there is no copy.
class PackedWeight {
 public:
  PackedWeight() = default;
  PackedWeight(const onednn::desc& canonical, const onednn::desc& wanted, MemoryRequirements& needs,
               std::size_t skip = 0)
      : skip_(skip) {
    if (wanted == canonical) return;
    offset_ = needs.packed_weights;
    needs.packed_weights += align64(wanted.get_size());
    const auto pd = onednn::reorder(canonical, wanted);
    copy_ = onednn::Call(pd, dnnl::reorder(pd), {{DNNL_ARG_FROM, canonical}, {DNNL_ARG_TO, wanted}});
  }

  std::size_t scratch_bytes() const { return copy_.scratch_bytes(); }
  void* data(const OpArgs& args) const { return copy_ ? at(args.packed_weights, offset_) : from(args); }
  void repack(const OpArgs& args) {
    if (!copy_) return;
    copy_.bind(DNNL_ARG_FROM, from(args));
    copy_.bind(DNNL_ARG_TO, data(args));
    run(copy_, args);
  }

 private:
  void* from(const OpArgs& args) const { return at(args.weight[0].data, skip_); }

  onednn::Call copy_;
  std::size_t offset_ = 0, skip_ = 0;
};

// Makes NativeOp(spec) if oneDNN has an optimised kernel for the dtype of the Spec. Otherwise emulates 16 bits in
// float32, because the reference code of oneDNN would be a hundred times slower.
template <class NativeOp, class OpSpec>
std::unique_ptr<Op> native_or_emulated(const OpSpec& spec, const std::string& what, const HalfTensors& tensors) {
  onednn::type_of(spec.dtype);  // rejects integer types
  if (spec.dtype == DType::bf16 && onednn::has_bf16()) {
    try {
      auto op = std::make_unique<NativeOp>(spec);
      if (op->implementation().find("ref:") == std::string::npos) return op;
    } catch (const dnnl::error&) {  // bf16 is not supported for this shape
    }
  }
  OpSpec float_spec = spec;
  float_spec.dtype = DType::f32;
  auto op = onednn::checked(what, [&] { return std::make_unique<NativeOp>(float_spec); });
  if (spec.dtype == DType::f32) return op;
  return emulate_half(spec.dtype, std::move(op), tensors);
}

}  // namespace millrace::cpu
