// The CPU backend, and a backend that forwards every call to another one. Tests override what they change.
#pragma once
#include "millrace/comm/world.hpp"
#include "millrace/compute/execution_context.hpp"

namespace millrace::test {

struct CpuContext {
  std::unique_ptr<World> world = solo_world();
  ExecutionContext compute;
  CpuContext() {
    ExecutionOptions options;
    options.placement.compute_threads = 2;
    compute = make_cpu_context(*world, options);
  }
};

struct ForwardingBackend : Backend {
  Backend& inner;
  explicit ForwardingBackend(Backend& b) : inner(b) {}
  Device& device() override { return inner.device(); }
  std::unique_ptr<Op> make(const Spec& spec) override { return inner.make(spec); }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& s) override { return inner.make_optimizer(s); }
  void convert(void* dst, DType to, const void* src, DType from, std::int64_t n) override {
    inner.convert(dst, to, src, from, n);
  }
  bool merges_norm(const BatchNormSpec& spec) const override { return inner.merges_norm(spec); }
  bool has_partial_attention() const override { return inner.has_partial_attention(); }
  bool applies_norm_gradient() const override { return inner.applies_norm_gradient(); }
  bool pays(const Spec& spec) const override { return inner.pays(spec); }
  std::string why_not_fused(const Spec& spec) override { return inner.why_not_fused(spec); }
  int max_fusion_level() const override { return 3; }
  int default_fusion_level() const override { return 1; }
  std::string precision_note(DType) const override { return ""; }
};

}  // namespace millrace::test
