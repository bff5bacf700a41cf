// LSTM, GRU and plain recurrent layers. All arrays are in the order of the computation: rows of one step lie together,
// so that W_ih x of all steps is one product, each step's W_hh h is one of dense matrices, and so are both gradients of
// the weights. src and dst are copied into and out of that order. Threads divide the rows of a step, and the products.
#include <algorithm>
#include <cstring>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/tokens/recurrent_gates.hpp"
#include "cpu/tokens/recurrent_products.hpp"

namespace millrace::cpu {
namespace {

using Kind = RecurrentSpec::Kind;

void forward_gates(Kind kind, const GateForward& a, std::int64_t n) {
  switch (kind) {
    case Kind::lstm:
      return lstm_forward(a, n);
    case Kind::gru:
      return gru_forward(a, n);
    case Kind::rnn_tanh:
      return rnn_tanh_forward(a, n);
    case Kind::rnn_relu:
      return rnn_relu_forward(a, n);
  }
}

void backward_gates(Kind kind, const GateBackward& a, std::int64_t n) {
  switch (kind) {
    case Kind::lstm:
      return lstm_backward(a, n);
    case Kind::gru:
      return gru_backward(a, n);
    case Kind::rnn_tanh:
      return rnn_tanh_backward(a, n);
    case Kind::rnn_relu:
      return rnn_relu_backward(a, n);
  }
}

class Recurrent : public Op {
 public:
  explicit Recurrent(const RecurrentSpec& s) : spec_(s), train_(s.mode == Mode::train) {
    const std::int64_t all = s.rows() * s.steps(), width = s.width(), in = s.features(), units = s.units;
    inputs_ = StepProduct(s, {all, width, in}, {1, in}, DType::f32, needs_);
    step_ = StepProduct(s, {s.rows(), width, units}, {1, units}, DType::f32, needs_);
    std::size_t scratch = std::max(inputs_.scratch_bytes(), step_.scratch_bytes());
    if (train_) {
      step_back_ = StepProduct(s, {s.rows(), units, width}, {units, 1}, DType::f32, needs_);
      if (s.need_diff_src) inputs_back_ = StepProduct(s, {all, in, width}, {in, 1}, s.dtype, needs_);
      diff_ih_ = WeightGradient(s, all, in);
      if (s.steps() > 1) diff_hh_ = WeightGradient(s, all - s.rows(), units);
      scratch = std::max({scratch, step_back_.scratch_bytes(), inputs_back_.scratch_bytes(), diff_ih_.scratch_bytes(),
                          diff_hh_.scratch_bytes()});
    }
    layout_ = RecurrentLayout(s, s.rows(), scratch);
    zeros_at_ = layout_.workspace_bytes;
    needs_.workspace = zeros_at_ + align64(std::size_t(width) * sizeof(float));
    needs_.saved = layout_.saved_bytes;
    bias_at_ = needs_.packed_weights;
    needs_.packed_weights += align64(std::size_t(4 * units) * sizeof(float));
  }

  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override {
    std::string text = step_.call.full_name() + ", inputs " + inputs_.call.name();
    if (train_) text += ", backward data " + step_back_.call.name() + ", backward weights " + diff_ih_.name();
    return text;
  }

  void repack(const OpArgs& args) override {
    const OpArgs of_hidden = hidden_weights(args);
    inputs_.weight.repack(args);
    step_.weight.repack(of_hidden);
    step_back_.weight.repack(of_hidden);
    inputs_back_.weight.repack(args);
    float* const bias = bias_of(args);
    std::fill_n(bias, 4 * spec_.units, 0.0f);
    if (!spec_.bias) return;
    const float *ih = args.weight[2].as<float>(), *hh = args.weight[3].as<float>();
    const bool gru = spec_.kind == Kind::gru;
    for (std::int64_t k = 0; k < spec_.width(); ++k) bias[k] = ih[k] + (gru && k >= 2 * spec_.units ? 0 : hh[k]);
    if (gru) std::copy_n(hh + 2 * spec_.units, spec_.units, bias + 3 * spec_.units);
  }

  void forward(const OpArgs& args) override {
    const OpArgs of_hidden = hidden_weights(args);
    const Arrays to = arrays(args);
    to_steps(to.src, args.src[0]);
    inputs_.run(args, to.src, to.gates);
    std::fill_n(to.zeros, spec_.width(), 0.0f);
    for (std::int64_t step = 0; step < spec_.steps(); ++step) {
      if (step > 0) step_.run(of_hidden, hidden(to, step - 1), to.product);
      each_part([&](std::int64_t row, std::int64_t unit, std::int64_t n) {
        forward_part(args, to, {step, row, unit, n});
      });
    }
  }

  void backward(const OpArgs& args) override {
    const OpArgs of_hidden = hidden_weights(args);
    const Arrays to = arrays(args);
    std::fill_n(to.zeros, spec_.width(), 0.0f);
    if (spec_.cell_state)
      each_part([&](std::int64_t row, std::int64_t unit, std::int64_t n) {
        Tile cell;
        std::copy_n(read_floats(args.diff_dst, cell_at(row, unit), n, cell), n, to.carry + row * spec_.units + unit);
      });
    else
      std::memset(to.carry, 0, std::size_t(spec_.rows() * spec_.units) * sizeof(float));
    for (std::int64_t step = spec_.steps() - 1; step >= 0; --step) {
      each_part([&](std::int64_t row, std::int64_t unit, std::int64_t n) {
        backward_part(args, to, {step, row, unit, n});
      });
      if (step > 0) step_back_.run(of_hidden, diff(to.diff_hh, step), to.diff_hidden);
    }
    backward_parameters(args, to);
    if (!inputs_back_.call || !args.diff_src[0]) return;
    inputs_back_.run(args, to.diff_ih, to.src);
    from_steps(args.diff_src[0], to.src);
  }

 private:
  struct Arrays {
    float *gates, *state, *query, *product, *diff_hidden, *carry, *zeros;
    void *hidden, *src, *diff_ih, *diff_hh;
  };
  struct Part {
    std::int64_t step, row, unit, n;
  };

  Arrays arrays(const OpArgs& args) const {
    void *const kept = train_ ? args.saved : args.workspace, *const work = args.workspace;
    const auto floats = [](void* base, std::size_t offset) { return static_cast<float*>(at(base, offset)); };
    return {floats(kept, layout_.gates),   floats(kept, layout_.state),       floats(kept, layout_.query),
            floats(work, layout_.product), floats(work, layout_.diff_hidden), floats(work, layout_.carry),
            floats(work, zeros_at_),       at(kept, layout_.hidden),          at(work, layout_.src),
            at(work, layout_.diff_ih),     at(work, layout_.diff_hh)};
  }
  float* bias_of(const OpArgs& args) const { return static_cast<float*>(at(args.packed_weights, bias_at_)); }
  // PackedWeight reads weight[0].
  static OpArgs hidden_weights(const OpArgs& args) {
    OpArgs out = args;
    out.weight[0] = args.weight[1];
    return out;
  }

  // Elements before a step in arrays of the state. In Mode::infer, two steps take turns.
  std::int64_t state_at(std::int64_t step) const { return (train_ ? step : step % 2) * spec_.rows() * spec_.units; }
  void* hidden(const Arrays& to, std::int64_t step) const {
    return at(to.hidden, std::size_t(state_at(step)) * size_of(spec_.dtype));
  }
  void* diff(void* array, std::int64_t step) const {
    return at(array, std::size_t(step * spec_.rows() * spec_.width()) * size_of(spec_.dtype));
  }
  std::int64_t dst_at(const Part& p) const {
    return (p.row * spec_.positions() + spec_.time_of(p.step)) * spec_.units + p.unit;
  }
  std::int64_t cell_at(std::int64_t row, std::int64_t unit) const {
    return row * spec_.positions() * spec_.units + spec_.cell_at() + unit;
  }

  // Calls body(row, first unit, n) for all units of all rows.
  template <class Body>
  void each_part(const Body& body) const {
    const std::int64_t grain = std::max<std::int64_t>(1, tile_count / 2 / spec_.units);
    parallel_ranges(spec_.rows(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t unit = 0; unit < spec_.units; unit += tile_count)
          body(row, unit, std::min(tile_count, spec_.units - unit));
    });
  }

  // write_floats() expects values of a float32 tensor in their place.
  static void copy_floats(const Tensor& to, std::int64_t at, std::int64_t n, const float* values) {
    if (to.dtype == DType::f32)
      std::copy_n(values, n, to.as<float>() + at);
    else
      write_floats(to, at, n, values);
  }

  void forward_part(const OpArgs& args, const Arrays& to, const Part& p) const {
    const std::int64_t in_step = p.row * spec_.units + p.unit, in_gates = p.row * spec_.width() + p.unit;
    const std::int64_t state = state_at(p.step) + in_step;
    Tile h;
    float* const in_place = static_cast<float*>(to.hidden) + state;  // of an LSTM in float32
    GateForward a{.units = spec_.units,
                  .gates = to.gates + p.step * spec_.rows() * spec_.width() + in_gates,
                  .product = p.step > 0 ? to.product + in_gates : to.zeros,
                  .bias = bias_of(args) + p.unit,
                  .before = p.step > 0 ? to.state + state_at(p.step - 1) + in_step : to.zeros,
                  .state = to.state + state,
                  .hidden = spec_.dtype == DType::f32 ? in_place : h.v,
                  .query = to.query + (train_ ? state : in_step)};
    forward_gates(spec_.kind, a, p.n);
    const float* const result = spec_.kind == Kind::lstm ? a.hidden : a.state;
    const Tensor steps{to.hidden, spec_.dtype, {}};
    write_floats(steps, state, p.n, result);
    copy_floats(args.dst, dst_at(p), p.n, result);
    if (spec_.cell_state && p.step + 1 == spec_.steps()) copy_floats(args.dst, cell_at(p.row, p.unit), p.n, a.state);
  }

  void backward_part(const OpArgs& args, const Arrays& to, const Part& p) const {
    const bool gru = spec_.kind == Kind::gru;
    const std::int64_t in_step = p.row * spec_.units + p.unit;
    const std::int64_t in_gates = (p.step * spec_.rows() + p.row) * spec_.width() + p.unit;
    Tile dy, parts[4];
    GateBackward a{.units = spec_.units,
                   .gates = to.gates + in_gates,
                   .before = p.step > 0 ? to.state + state_at(p.step - 1) + in_step : to.zeros,
                   .state = to.state + state_at(p.step) + in_step,
                   .query = to.query + state_at(p.step) + in_step,
                   .diff_dst = read_floats(args.diff_dst, dst_at(p), p.n, dy),
                   .diff_hidden = p.step + 1 < spec_.steps() ? to.diff_hidden + in_step : to.zeros,
                   .carry = to.carry + in_step,
                   .diff = {}};
    const Tensor ih{to.diff_ih, spec_.dtype, {}}, hh{to.diff_hh, spec_.dtype, {}};
    for (std::int64_t gate = 0; gate < spec_.gates(); ++gate)
      a.diff[gate] = float_target(ih, in_gates + gate * spec_.units, parts[gate]);
    const std::int64_t last = in_gates + 2 * spec_.units;  // of the gate n
    if (gru) a.diff[3] = float_target(hh, last, parts[3]);
    backward_gates(spec_.kind, a, p.n);
    for (std::int64_t gate = 0; gate < spec_.gates(); ++gate)
      write_floats(ih, in_gates + gate * spec_.units, p.n, a.diff[gate]);
    if (!gru) return;
    write_floats(hh, last, p.n, a.diff[3]);
    for (const std::int64_t gate : {0, 1}) {  // the other gates have the same gradient in both arrays
      const std::int64_t begin = in_gates + gate * spec_.units;
      std::memcpy(element(hh, begin), element(ih, begin), std::size_t(p.n) * size_of(spec_.dtype));
    }
  }

  void backward_parameters(const OpArgs& args, const Arrays& to) {
    const Shape diffs{spec_.rows() * spec_.steps(), spec_.width()};
    if (args.diff_weight[0]) {
      to_steps(to.src, args.src[0]);
      diff_ih_.run(args, 0, to.diff_ih, to.src);
    }
    if (args.diff_weight[1]) {
      if (spec_.steps() > 1)
        diff_hh_.run(args, 1, diff(to.diff_hh, 1), to.hidden);
      else if (args.mode[1] == GradMode::write)  // W_hh has been multiplied by zeros
        std::fill_n(args.diff_weight[1].as<float>(), args.diff_weight[1].count(), 0.0f);
    }
    if (args.diff_weight[2])
      sum_columns(args.diff_weight[2].as<float>(), {to.diff_ih, spec_.dtype, diffs}, args.mode[2]);
    if (args.diff_weight[3])
      sum_columns(args.diff_weight[3].as<float>(), {to.diff_hh, spec_.dtype, diffs}, args.mode[3]);
  }

  // Calls body(place in the order of the steps, place in that of src), in rows of features.
  template <class Body>
  void each_row(const Body& body) const {
    const std::int64_t rows = spec_.rows(), grain = std::max<std::int64_t>(1, 4 * tile_count / spec_.features());
    parallel_ranges(rows * spec_.steps(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        body(std::size_t(i), std::size_t(i % rows * spec_.steps() + spec_.time_of(i / rows)));
    });
  }
  void to_steps(void* steps, const Tensor& src) const {
    const std::size_t bytes = std::size_t(spec_.features()) * size_of(spec_.dtype);
    each_row([&](std::size_t to, std::size_t from) {
      std::memcpy(at(steps, to * bytes), at(src.data, from * bytes), bytes);
    });
  }
  void from_steps(const Tensor& src, const void* steps) const {
    const std::size_t bytes = std::size_t(spec_.features()) * size_of(spec_.dtype);
    each_row([&](std::size_t from, std::size_t to) {
      std::memcpy(at(src.data, to * bytes), static_cast<const std::byte*>(steps) + from * bytes, bytes);
    });
  }

  RecurrentSpec spec_;
  bool train_;
  MemoryRequirements needs_;
  StepProduct inputs_, step_, step_back_, inputs_back_;
  WeightGradient diff_ih_, diff_hh_;
  RecurrentLayout layout_;
  std::size_t zeros_at_ = 0, bias_at_ = 0;  // in the workspace; in packed_weights
};

}  // namespace

std::unique_ptr<Op> make_recurrent(const RecurrentSpec& spec) {
  spec.check();
  const HalfTensors tensors{.src = {spec.src.count()},
                            .dst = spec.dst().count(),
                            .weight = {spec.weight_ih().count(), spec.weight_hh().count()},
                            .keeps_src = true,
                            .infer = spec.mode == Mode::infer};
  return native_or_emulated<Recurrent>(spec, name_of(Spec(spec)) + std::string(" ") + spec.src.str(), tensors);
}

}  // namespace millrace::cpu
