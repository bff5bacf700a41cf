// The bias of transposed convolutions. src/ops/transposed_conv.cpp has the rest.
#include "cpu/common/ops.hpp"
#include "cpu/common/row_lines.hpp"

namespace millrace::cpu {
namespace {

// All positions of all rows are one row here. Workspace: the sums of the parts, or the bias of each lane.
class TransposedConv : public TransposedConvOp {
 public:
  TransposedConv(const TransposedConvSpec& spec, std::unique_ptr<Op> conv)
      : TransposedConv(spec, std::move(conv), RowLines(1, spec.dst().count() / spec.out_channels, spec.out_channels)) {}

 private:
  TransposedConv(const TransposedConvSpec& spec, std::unique_ptr<Op> conv, const RowLines& lines)
      : TransposedConvOp(spec, std::move(conv), spec.bias ? std::size_t(lines.sum_count(1)) * sizeof(float) : 0),
        lines_(lines) {}

  void add_bias(const OpArgs& args) override {
    float* const bias = static_cast<float*>(args.workspace);
    lines_.spread(bias, [&](std::int64_t c) { return args.weight[1].as<float>()[c]; });
    const auto body = [&](std::int64_t, std::int64_t begin, std::int64_t lane, std::int64_t n) {
      Tile value;
      float* const to = float_target(args.dst, begin, value);
      add(to, read_floats(args.dst, begin, n, value), bias + lane, n);
      write_floats(args.dst, begin, n, to);
    };
    lines_.each([](std::int64_t) {}, body);
  }

  void sum_bias_gradient(const OpArgs& args) override {
    float* const sums = static_cast<float*>(args.workspace);
    lines_.each([&](std::int64_t part) { std::fill_n(sums + part * lines_.width, lines_.width, 0.0f); },
                [&](std::int64_t part, std::int64_t begin, std::int64_t lane, std::int64_t n) {
                  Tile gradient;
                  float* const sum = sums + part * lines_.width + lane;
                  add(sum, sum, read_floats(args.diff_dst, begin, n, gradient), n);
                });
    float* const to = args.diff_weight[1].as<float>();
    for (std::int64_t c = 0; c < lines_.channels; ++c) {
      const double sum = lines_.total(sums, 1, 0, 0, c);
      to[c] = args.mode[1] == GradMode::add ? float(double(to[c]) + sum) : float(sum);
    }
  }

  RowLines lines_;
};

}  // namespace

std::unique_ptr<Op> make_transposed_conv(const TransposedConvSpec& spec, std::unique_ptr<Op> conv) {
  return std::make_unique<TransposedConv>(spec, std::move(conv));
}

}  // namespace millrace::cpu
