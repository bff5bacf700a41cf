// LSTM, GRU and plain recurrent layers: W_ih x of all steps is one multiplication, and each step has one of W_hh and a
// kernel for the gates. Arrays are in the order of the steps (RecurrentLayout). In column-major order, as in
// linear.cpp:
//
//   gates = W_ih^T src,   diff_src = W_ih diff,   diff_W = src diff^T.
//
// Multiplications need pointers that are aligned to 16 bytes. Steps whose size is no multiple of that have more rows:
// of zeros, whose gradients are zero.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/dnn/matmul.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/workspace.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

std::int64_t aligned_rows(const RecurrentSpec& s) {
  const auto elements = std::int64_t(16 / size_of(s.dtype));
  return s.rows() * s.units % elements == 0 ? s.rows() : (s.rows() + elements - 1) / elements * elements;
}

class Recurrent : public Op {
 public:
  Recurrent(const RecurrentSpec& s, const LaunchContext& context, Cublas& cublas)
      : context_(context), spec_(s), rows_(aligned_rows(s)), train_(s.mode == Mode::train) {
    const std::int64_t all = rows_ * s.steps(), width = s.width(), in = s.features(), units = s.units;
    if (all > max_rows || rows_ * width > max_rows || in > max_rows)
      fail(Exit::config, "{}: {} with {} units is more than the kernels can index. lower train.micro_batch",
           name_of(Spec(s)), s.src.str(), units);
    inputs_ = cublas.make({width, all, in, true, false, s.dtype, DType::f32});
    step_ = cublas.make({width, rows_, units, true, false, s.dtype, DType::f32});
    if (train_) {
      const std::int64_t pairs = std::max<std::int64_t>(all - rows_, rows_);
      step_back_ = cublas.make({units, rows_, width, false, false, s.dtype, DType::f32});
      if (s.need_diff_src) inputs_back_ = cublas.make({in, all, width, false, false, s.dtype, s.dtype});
      diff_ih_ = cublas.make({in, width, all, false, true, s.dtype, DType::f32});
      diff_hh_ = cublas.make({units, width, pairs, false, true, s.dtype, DType::f32});
    }
    std::size_t scratch = train_ && s.bias ? column_sums_bytes(all, width, context) : 0;
    for (const Matmul* m :
         {inputs_.get(), step_.get(), step_back_.get(), inputs_back_.get(), diff_ih_.get(), diff_hh_.get()})
      if (m) scratch = std::max(scratch, m->workspace_bytes());
    layout_ = RecurrentLayout(s, rows_, scratch);
  }

  MemoryRequirements memory_requirements() const override { return {layout_.workspace_bytes, layout_.saved_bytes, 0}; }
  std::string implementation() const override {
    std::string text = fmt::format("{}, inputs {}, gates by a kernel", step_->name(), inputs_->name());
    if (train_) text += fmt::format(", backward data {}, backward weights {}", step_back_->name(), diff_ih_->name());
    return text;
  }

  void forward(const OpArgs& args) override {
    const Arrays to = arrays(args);
    cuda::to_steps(context_, spec_, rows_, to.src, args.src[0].data);
    multiply(*inputs_, args, args.weight[0].data, to.src, to.gates);
    for (std::int64_t step = 0; step < spec_.steps(); ++step) {
      if (step > 0) multiply(*step_, args, args.weight[1].data, hidden(to, step - 1), to.product);
      RecurrentForward a{.rows = rows_, .own = spec_.rows()};
      a.gates = to.gates + step * rows_ * spec_.width();
      a.product = step > 0 ? to.product : nullptr;
      a.bias_ih = args.weight[2].as<float>();
      a.bias_hh = args.weight[3].as<float>();
      a.before = step > 0 ? to.state + state_at(step - 1) : nullptr;
      a.state = to.state + state_at(step);
      a.query = to.query + (train_ ? state_at(step) : 0);
      a.hidden = hidden(to, step);
      a.dst = at(args.dst.data, dst_at(step));
      a.dst_stride = spec_.positions() * spec_.units;
      if (spec_.cell_state && step + 1 == spec_.steps()) a.cell = at(args.dst.data, cell_at());
      recurrent_forward(context_, spec_, a);
    }
  }

  void backward(const OpArgs& args) override {
    const Arrays to = arrays(args);
    for (std::int64_t step = spec_.steps() - 1; step >= 0; --step) {
      RecurrentBackward a{.rows = rows_, .own = spec_.rows()};
      a.gates = to.gates + step * rows_ * spec_.width();
      a.before = step > 0 ? to.state + state_at(step - 1) : nullptr;
      a.state = to.state + state_at(step);
      a.query = to.query + state_at(step);
      a.carry = to.carry;
      a.carries = step + 1 < spec_.steps();
      a.diff_hidden = a.carries ? to.diff_hidden : nullptr;
      a.diff_dst = at(args.diff_dst.data, dst_at(step));
      a.dst_stride = spec_.positions() * spec_.units;
      if (spec_.cell_state && !a.carries) a.diff_cell = at(args.diff_dst.data, cell_at());
      a.diff_ih = diff(to.diff_ih, step);
      a.diff_hh = diff(to.diff_hh, step);
      recurrent_backward(context_, spec_, a);
      if (step > 0) multiply(*step_back_, args, args.weight[1].data, a.diff_hh, to.diff_hidden);
    }
    backward_parameters(args, to);
    if (!inputs_back_ || !args.diff_src[0]) return;
    multiply(*inputs_back_, args, args.weight[0].data, to.diff_ih, to.src);
    cuda::from_steps(context_, spec_, rows_, args.diff_src[0].data, to.src);
  }

 private:
  static constexpr std::int64_t max_rows = std::int64_t(1) << 30;
  struct Arrays {
    float *gates, *state, *query, *product, *diff_hidden, *carry;
    void *hidden, *src, *diff_ih, *diff_hh;
  };
  Arrays arrays(const OpArgs& args) const {
    void *const kept = train_ ? args.saved : args.workspace, *const work = args.workspace;
    const auto floats = [](void* base, std::size_t offset) { return static_cast<float*>(at(base, offset)); };
    return {floats(kept, layout_.gates),       floats(kept, layout_.state),
            floats(kept, layout_.query),       floats(work, layout_.product),
            floats(work, layout_.diff_hidden), floats(work, layout_.carry),
            at(kept, layout_.hidden),          at(work, layout_.src),
            at(work, layout_.diff_ih),         at(work, layout_.diff_hh)};
  }
  // Elements before a step in arrays of the state. In Mode::infer, two steps take turns.
  std::int64_t state_at(std::int64_t step) const { return (train_ ? step : step % 2) * rows_ * spec_.units; }
  void* hidden(const Arrays& to, std::int64_t step) const {
    return at(to.hidden, std::size_t(state_at(step)) * size_of(spec_.dtype));
  }
  void* diff(void* array, std::int64_t step) const {
    return at(array, std::size_t(step * rows_ * spec_.width()) * size_of(spec_.dtype));
  }
  std::size_t dst_at(std::int64_t step) const {
    return std::size_t(spec_.time_of(step) * spec_.units) * size_of(spec_.dtype);
  }
  std::size_t cell_at() const { return std::size_t(spec_.cell_at()) * size_of(spec_.dtype); }

  void multiply(Matmul& product, const OpArgs& args, const void* a, const void* b, void* d, float alpha = 1,
                float beta = 0) const {
    product.run(context_.stream, {.a = a, .b = b, .d = d, .workspace = args.workspace, .alpha = alpha, .beta = beta});
  }

  void backward_parameters(const OpArgs& args, const Arrays& to) {
    const auto beta = [&](std::size_t weight) { return args.mode[weight] == GradMode::add ? 1.0f : 0.0f; };
    if (args.diff_weight[0]) {
      cuda::to_steps(context_, spec_, rows_, to.src, args.src[0].data);
      multiply(*diff_ih_, args, to.src, to.diff_ih, args.diff_weight[0].data, 1, beta(0));
    }
    if (args.diff_weight[1]) {  // of one step alone, W_hh has been multiplied by zeros
      const bool steps = spec_.steps() > 1;
      multiply(*diff_hh_, args, to.hidden, diff(to.diff_hh, steps ? 1 : 0), args.diff_weight[1].data, steps ? 1 : 0,
               beta(1));
    }
    const std::int64_t all = rows_ * spec_.steps();
    if (args.diff_weight[2])
      column_sums(context_, args.diff_weight[2].as<float>(), {to.diff_ih, spec_.dtype, all, spec_.width()},
                  args.mode[2], args.workspace);
    if (args.diff_weight[3])
      column_sums(context_, args.diff_weight[3].as<float>(), {to.diff_hh, spec_.dtype, all, spec_.width()},
                  args.mode[3], args.workspace);
  }

  LaunchContext context_;
  RecurrentSpec spec_;
  std::int64_t rows_;  // of a step, with those of zeros
  bool train_;
  std::unique_ptr<Matmul> inputs_, step_, step_back_, inputs_back_, diff_ih_, diff_hh_;
  RecurrentLayout layout_;
};

}  // namespace

std::unique_ptr<Op> make_recurrent(const RecurrentSpec& spec, const LaunchContext& context, Cublas& cublas) {
  spec.check();
  return std::make_unique<Recurrent>(spec, context, cublas);
}

}  // namespace millrace::cuda
