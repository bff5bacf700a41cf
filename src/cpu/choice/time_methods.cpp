#include "cpu/choice/time_methods.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <set>

#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace::cpu {
namespace {

constexpr double most_flops = 1e8;          // of a timed forward pass and a thread, unless images are small
constexpr std::int64_t least_pixels = 256;  // of all images: enough for reading the weights to pay off
// The gradient of the weights is transformed back once in a call, which must not count more than in a step.
constexpr std::int64_t least_pixels_of_weights = 1024;
constexpr TimingRules brief{
    .warm_up_seconds = 0, .batch_seconds = 5e-4, .max_calls = 8, .pairs = 3, .slowdown_limit = 1.3};

// At most so many images that a call takes about a millisecond, but enough for all threads.
ConvSpec with_fewer_images(ConvSpec s, ConvPass pass) {
  ConvSpec one = s;
  one.src[0] = 1;
  const Shape dst = one.dst();
  const std::int64_t pixels = std::max<std::int64_t>(1, dst.count() / dst[-1]), threads = thread_count();
  const std::int64_t least = pass == ConvPass::weights ? least_pixels_of_weights : least_pixels;
  const std::int64_t images = std::max(
      {std::int64_t(most_flops * double(threads) / std::max(1.0, one.flops())), ceil_div(least, pixels), threads});
  s.src[0] = std::min(s.src[0], images);
  return s;
}

// Memory for timing, filled with numbers of about 0.01.
class TimingMemory {
 public:
  explicit TimingMemory(std::size_t bytes, DType dtype = DType::f32)
      : data_(static_cast<std::uint32_t*>(::operator new(align64(std::max<std::size_t>(bytes, 64)), alignment))) {
    const std::uint32_t value = dtype == DType::f32 ? 0x3c23d70a : 0x3c233c23;
    std::fill_n(data_, align64(std::max<std::size_t>(bytes, 64)) / sizeof(value), value);
  }
  TimingMemory(const Shape& shape, DType dtype) : TimingMemory(std::size_t(shape.count()) * size_of(dtype), dtype) {}
  ~TimingMemory() { ::operator delete(data_, alignment); }
  TimingMemory(const TimingMemory&) = delete;
  void* data() const { return data_; }

 private:
  static constexpr std::align_val_t alignment{64};
  std::uint32_t* data_;
};

struct TimingTensors {
  explicit TimingTensors(const ConvSpec& s)
      : src(s.src, s.dtype),
        dst(s.dst(), s.dtype),
        weight(s.weight(), s.dtype),
        diff_src(s.src, s.dtype),
        diff_dst(s.dst(), s.dtype),
        diff_weight(s.weight(), DType::f32),
        bias(Shape{s.out_channels}, DType::f32),
        diff_bias(Shape{s.out_channels}, DType::f32) {}
  OpArgs args(const ConvSpec& s, ConvPass pass) const {
    OpArgs out;
    out.src[0] = {src.data(), s.dtype, s.src};
    out.weight[0] = {weight.data(), s.dtype, s.weight()};
    if (s.bias) out.weight[1] = {bias.data(), DType::f32, Shape{s.out_channels}};
    if (pass == ConvPass::forward) out.dst = {dst.data(), s.dtype, s.dst()};
    if (pass != ConvPass::forward) out.diff_dst = {diff_dst.data(), s.dtype, s.dst()};
    if (pass == ConvPass::data) out.diff_src[0] = {diff_src.data(), s.dtype, s.src};
    if (pass == ConvPass::weights) {
      out.diff_weight[0] = {diff_weight.data(), DType::f32, s.weight()};
      if (s.bias) out.diff_weight[1] = {diff_bias.data(), DType::f32, Shape{s.out_channels}};
    }
    return out;
  }
  TimingMemory src, dst, weight, diff_src, diff_dst, diff_weight, bias, diff_bias;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// For each method, how much longer than the fastest it takes to bring the weights into its layout. All bring them into
// that of the other passes too, so the differences belong to the methods.
std::vector<double> seconds_of_repacking(const std::vector<std::unique_ptr<Op>>& ops, const OpArgs& args) {
  constexpr int rounds = 3;
  std::vector<double> seconds(ops.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      ops[i]->repack(args);
      seconds[i] = std::min(seconds[i], seconds_since(begin));
    }
  const double least = *std::min_element(seconds.begin(), seconds.end());
  for (double& s : seconds) s -= least;
  return seconds;
}

}  // namespace

std::size_t choose_method(const std::vector<double>& seconds) {
  const auto best = std::min_element(seconds.begin(), seconds.end());
  if (best == seconds.end() || *best == std::numeric_limits<double>::infinity()) return seconds.size();
  return *best < needed_gain * seconds[0] ? std::size_t(best - seconds.begin()) : 0;
}

MethodTimes time_methods(std::size_t count, const MeasureCalls& measure) {
  MethodTimes out{time_candidates(count, measure, brief)};
  out.chosen = choose_method(out.seconds);
  if (out.chosen == count || out.seconds[0] < std::numeric_limits<double>::infinity()) return out;
  // The first method is dropped for no slow moment: it is timed beside the fastest in any case. Times of the others
  // are from another moment, so these two are compared with each other only.
  const std::size_t best = out.chosen;
  TimingRules both = brief;
  both.slowdown_limit = std::numeric_limits<double>::max();
  const auto two = time_candidates(
      2, [&](std::size_t c, int calls) { return measure(c == 0 ? 0 : best, calls); }, both);
  out.seconds[0] = two[0];
  out.seconds[best] = two[1];
  const std::size_t better = choose_method(two);
  out.chosen = better == 0 ? 0 : better == 1 ? best : count;
  return out;
}

std::vector<TimedMethod> time_conv(const ConvSpec& whole, ConvPass pass, const std::vector<ConvMethod>& methods,
                                   bool winograd) {
  const ConvSpec spec = with_fewer_images(whole, pass);
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<TimedMethod> timed;
  std::set<std::string> codes;
  std::size_t workspace = 0, packed = 0;
  for (const ConvMethod method : methods) {
    ConvMethods all{ConvMethod::direct, ConvMethod::direct, ConvMethod::direct, winograd, ""};
    all.of(pass) = method;
    auto op = make_conv(spec, all);
    if (!codes.insert(op->implementation()).second) continue;
    workspace = std::max(workspace, op->memory_requirements().workspace);
    packed = std::max(packed, op->memory_requirements().packed_weights);
    ops.push_back(std::move(op));
    timed.push_back({method, 0});
  }
  const TimingMemory scratch(workspace), weights(packed, spec.dtype);
  const TimingTensors tensors(spec);
  OpArgs args = tensors.args(spec, pass);
  args.workspace = scratch.data();
  args.packed_weights = weights.data();
  // In training, the weights are repacked once for all images of a micro-batch.
  std::vector<double> repacking(ops.size(), 0.0);
  if (spec.mode == Mode::train) repacking = seconds_of_repacking(ops, args);
  const double share = double(spec.src[0]) / double(whole.src[0]);
  const auto measure = [&](std::size_t candidate, int calls) {
    Op& op = *ops[candidate];
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) pass == ConvPass::forward ? op.forward(args) : op.backward(args);
    return seconds_since(begin) + calls * share * repacking[candidate];
  };
  const auto [seconds, chosen] = time_methods(ops.size(), measure);
  if (chosen == seconds.size()) return {};
  for (std::size_t i = 0; i < timed.size(); ++i) timed[i].seconds = seconds[i];
  std::swap(timed[0], timed[chosen]);
  std::sort(timed.begin() + 1, timed.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  std::erase_if(timed, [](const TimedMethod& m) { return m.seconds == std::numeric_limits<double>::infinity(); });
  return timed;
}

}  // namespace millrace::cpu
