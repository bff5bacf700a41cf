#include "cpu/choice/time_methods.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>

#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"
#include "millrace/plans/time_candidates.hpp"

namespace millrace::cpu {
namespace {

constexpr double most_flops = 3e8;          // of a timed forward pass, unless images are small
constexpr std::int64_t least_pixels = 256;  // of all images: enough tiles to read the weights for
constexpr TimingRules brief{
    .warm_up_seconds = 0, .batch_seconds = 1e-3, .max_calls = 8, .pairs = 1, .slowdown_limit = 1.2};

ConvSpec with_fewer_images(ConvSpec s) {
  ConvSpec one = s;
  one.src[0] = 1;
  const Shape dst = one.dst();
  const std::int64_t pixels = std::max<std::int64_t>(1, dst.count() / dst[-1]);
  const std::int64_t images =
      std::max(std::int64_t(most_flops / std::max(1.0, one.flops())), (least_pixels + pixels - 1) / pixels);
  s.src[0] = std::min(s.src[0], images);
  return s;
}

// A block of floats for timing.
class TimingMemory {
 public:
  explicit TimingMemory(std::size_t bytes)
      : data_(static_cast<float*>(::operator new(align64(std::max<std::size_t>(bytes, 64)), alignment))) {
    std::fill_n(data_, align64(std::max<std::size_t>(bytes, 64)) / sizeof(float), 0.01f);
  }
  explicit TimingMemory(const Shape& shape) : TimingMemory(std::size_t(shape.count()) * sizeof(float)) {}
  ~TimingMemory() { ::operator delete(data_, alignment); }
  TimingMemory(const TimingMemory&) = delete;
  float* data() const { return data_; }

 private:
  static constexpr std::align_val_t alignment{64};
  float* data_;
};

class TimedConv {
 public:
  TimedConv(const ConvSpec& s, const std::vector<ConvMethod>& candidates, bool winograd)
      : src_(s.src),
        dst_(s.dst()),
        weight_(s.weight()),
        diff_src_(s.src),
        diff_dst_(s.dst()),
        diff_weight_(s.weight()),
        bias_(Shape{s.out_channels}),
        diff_bias_(Shape{s.out_channels}) {
    MemoryRequirements most;
    for (const ConvMethod method : candidates) {
      ops_.push_back(make_conv(s, {method, method, method, winograd && method != ConvMethod::rule}));
      most.workspace = std::max(most.workspace, ops_.back()->memory_requirements().workspace);
      most.packed_weights = std::max(most.packed_weights, ops_.back()->memory_requirements().packed_weights);
    }
    workspace_.emplace(most.workspace);
    packed_.emplace(most.packed_weights);
    forward_.src[0] = {src_.data(), DType::f32, s.src};
    forward_.dst = {dst_.data(), DType::f32, s.dst()};
    forward_.weight[0] = {weight_.data(), DType::f32, s.weight()};
    if (s.bias) forward_.weight[1] = {bias_.data(), DType::f32, Shape{s.out_channels}};
    forward_.workspace = workspace_->data();
    forward_.packed_weights = packed_->data();
    data_ = forward_;
    data_.diff_dst = {diff_dst_.data(), DType::f32, s.dst()};
    weights_ = data_;
    data_.diff_src[0] = {diff_src_.data(), DType::f32, s.src};
    weights_.diff_weight[0] = {diff_weight_.data(), DType::f32, s.weight()};
    if (s.bias) weights_.diff_weight[1] = {diff_bias_.data(), DType::f32, Shape{s.out_channels}};
  }

  // Sets `method` to the fastest candidate of a part. Returns its seconds.
  double choose(const std::vector<ConvMethod>& candidates, ConvMethod& method, const OpArgs& args,
                bool backward) const {
    const auto seconds = time_candidates(
        ops_.size(),
        [&](std::size_t candidate, int calls) {
          Op& op = *ops_[candidate];
          const auto begin = std::chrono::steady_clock::now();
          for (int i = 0; i < calls; ++i) backward ? op.backward(args) : op.forward(args);
          return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        },
        brief);
    const std::size_t best = choose_candidate(seconds);
    if (best == seconds.size()) return 0;
    method = candidates[best];
    return seconds[best];
  }
  const OpArgs& forward() const { return forward_; }
  const OpArgs& data() const { return data_; }
  const OpArgs& weights() const { return weights_; }

 private:
  TimingMemory src_, dst_, weight_, diff_src_, diff_dst_, diff_weight_, bias_, diff_bias_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::optional<TimingMemory> workspace_, packed_;
  OpArgs forward_, data_, weights_;
};

}  // namespace

TimedMethods time_conv_methods(const ConvSpec& spec, const std::vector<ConvMethod>& candidates, bool winograd) {
  const ConvSpec s = with_fewer_images(spec);
  const TimedConv conv(s, candidates, winograd);
  TimedMethods out;
  out.methods.winograd = winograd;
  out.seconds = conv.choose(candidates, out.methods.forward, conv.forward(), false);
  if (s.mode == Mode::infer) return out;
  if (s.need_diff_src) out.seconds += conv.choose(candidates, out.methods.data, conv.data(), true);
  out.seconds += conv.choose(candidates, out.methods.weights, conv.weights(), true);
  return out;
}

}  // namespace millrace::cpu
