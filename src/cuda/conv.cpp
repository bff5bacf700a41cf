// Convolution by cuDNN. Activations and canonical weights lie as cuDNN's channels-last layouts do, so that nothing is
// reordered. Two things differ in 16 bits: cuDNN gives weight gradients in 16 bits only, which reach the float32
// gradient by way of the workspace; and a bias joins the convolution in 16 bits, a copy of which is kept in `derived`.
//
// Narrow images (3 channels) in 16 bits: engines read vectors of 4 or 8 channels, and cuDNN fills up to 8 in a
// workspace at every call. The op may do so itself, with a copy of the weights in `derived` that has the wider rows:
// whichever is faster, or, untimed, takes less memory.
#include "conv.hpp"

#include <algorithm>

#include "conv_kernels.hpp"
#include "cudnn.hpp"
#include "kernels.hpp"

namespace millrace::cuda {
namespace {

using cudnn::Call, cudnn::Choice, cudnn::ConvProblem, cudnn::Cudnn, cudnn::Direction;
using cudnn::src_role, cudnn::weight_role, cudnn::dst_role, cudnn::bias_role;

constexpr double copy_bytes_per_second = 2e12;  // of a memory-bound kernel, for comparing ways alone

std::size_t align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
void* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

ConvProblem problem(const ConvSpec& s, Direction direction, std::int64_t channels) {
  ConvProblem p;
  p.direction = direction, p.dtype = s.dtype, p.window = s.window;
  p.src = s.src, p.weight = s.weight(), p.dst = s.dst();
  if (channels != s.src[-1]) p.src[-1] = p.weight[-1] = channels;
  return p;
}

// One way to run the directions that read src: with this many channels.
struct Way {
  std::int64_t channels = 0;
  std::optional<Choice> forward, weights;
  bool bias = false;  // part of forward
  double seconds = 0;
  std::size_t workspace = 0;
  bool timed = true;
};

std::optional<Way> find_way(const ConvSpec& s, std::int64_t channels, Cudnn& library) {
  Way way;
  way.channels = channels;
  ConvProblem p = problem(s, Direction::forward, channels);
  const std::size_t copy = channels == s.src[-1] ? 0 : std::size_t(p.src.count()) * size_of(s.dtype);
  const auto count = [&](const std::optional<Choice>& choice) {
    way.seconds += choice->seconds + 2 * double(copy) / copy_bytes_per_second;
    way.workspace = std::max(way.workspace, copy + choice->plan.workspace_bytes());
    way.timed = way.timed && choice->seconds > 0;
  };
  if (s.bias) {
    p.bias = true;
    way.forward = library.choose(p);
    way.bias = way.forward.has_value();
    p.bias = false;
  }
  if (!way.forward) way.forward = library.choose(p);
  if (!way.forward) return std::nullopt;
  count(way.forward);
  if (s.mode == Mode::infer) return way;
  way.weights = library.choose(problem(s, Direction::backward_weights, channels));
  if (!way.weights) return std::nullopt;
  count(way.weights);
  return way;
}

Way best_way(const ConvSpec& s, Cudnn& library) {
  const std::int64_t own = s.src[-1];
  std::vector<std::int64_t> widths{own};
  if (s.dtype != DType::f32 && s.groups == 1 && own % 8 != 0) {
    if (own < 4) widths.push_back(4);
    widths.push_back((own + 7) / 8 * 8);
  }
  std::optional<Way> best;
  for (const std::int64_t width : widths) {
    auto way = find_way(s, width, library);
    if (!way) continue;
    const bool better =
        !best || (best->timed && way->timed ? way->seconds < best->seconds : way->workspace < best->workspace);
    if (better) best = std::move(way);
  }
  if (!best)
    fail(Exit::config, "cuDNN ", cudnnGetVersion(), " has no engine for the convolution ", s.src.str(), " -> ",
         s.dst().str(), " in ", name_of(s.dtype), " (", library.options().rules.key(),
         " bytes). choose another train.precision, or other channels or groups");
  return std::move(*best);
}

class Conv : public Op {
 public:
  Conv(const ConvSpec& s, const Context& context, Cudnn& library)
      : spec_(s), context_(context), handle_(library.handle()) {
    Way way = best_way(s, library);
    wide_ = way.channels;
    fused_bias_ = way.bias;
    std::vector<std::int64_t> roles{src_role, weight_role, dst_role};
    if (way.weights) weights_ = Call(std::move(way.weights->plan), roles);
    if (fused_bias_) roles.push_back(bias_role);
    forward_ = Call(std::move(way.forward->plan), roles);
    roles = {src_role, weight_role, dst_role};
    if (s.mode == Mode::train && s.need_diff_src) {
      auto choice = library.choose(problem(s, Direction::backward_data, s.src[-1]));
      if (!choice)
        fail(Exit::config, "cuDNN ", cudnnGetVersion(), " has no engine for the gradient of the convolution ",
             s.src.str(), " -> ", s.dst().str(), " in ", name_of(s.dtype), ". choose another train.precision");
      data_ = Call(std::move(choice->plan), roles);
    }
    if (weights_ && s.dtype == DType::f32) {
      ConvProblem add = problem(s, Direction::backward_weights, wide_);
      add.add = true;
      if (auto choice = library.choose(add)) weights_add_ = Call(std::move(choice->plan), roles);
    }
    plan();
  }

  Needs needs() const override { return needs_; }
  std::string implementation() const override {
    std::string text = "cudnn " + forward_.plan().engine();
    if (data_) text += ", backward data " + data_.plan().engine();
    if (weights_) text += ", backward weights " + weights_.plan().engine();
    if (padded()) text += cat(", ", wide_, " channels");
    if (spec_.bias && !fused_bias_) text += ", bias by a kernel";
    return text;
  }

  void refresh(const OpArgs& args) override {
    if (padded())
      copy_channels(context_, {at(args.derived, 0), spec_.dtype, wide_},
                    {args.weight[0].data, spec_.dtype, spec_.src[-1]}, weight_rows());
    if (copies_bias())
      convert(context_, at(args.derived, bias_at_), spec_.dtype, args.weight[1].data, DType::f32, spec_.out_channels);
  }

  void forward(const OpArgs& args) override {
    void* weight = padded() ? at(args.derived, 0) : args.weight[0].data;
    std::vector<void*> pointers{wide_src(args), weight, args.dst.data};
    if (fused_bias_) pointers.push_back(copies_bias() ? at(args.derived, bias_at_) : args.weight[1].data);
    forward_.run(handle_, std::move(pointers), args.workspace);
    if (spec_.bias && !fused_bias_)
      add_bias(context_, args.dst.data, spec_.dtype, args.weight[1].as<float>(), dst_rows(), spec_.out_channels);
  }

  void backward(const OpArgs& args) override {
    if (args.diff_weight[1])
      row_sums(context_, args.diff_weight[1].as<float>(), args.diff_dst.data, spec_.dtype, dst_rows(),
               spec_.out_channels, args.mode[1], args.workspace);
    if (args.diff_weight[0]) backward_weights(args);
    if (data_ && args.diff_src[0])
      data_.run(handle_, {args.diff_src[0].data, args.weight[0].data, args.diff_dst.data}, args.workspace);
  }

 private:
  bool padded() const { return wide_ != spec_.src[-1]; }
  bool copies_bias() const { return fused_bias_ && spec_.dtype != DType::f32; }
  std::int64_t dst_rows() const { return dst_rows_; }
  std::int64_t weight_rows() const { return weight_rows_; }

  // Workspace: cuDNN's or row_sums' own first, then src with more channels, then the weight gradient on its way home.
  void plan() {
    const Shape dst = spec_.dst(), weight = spec_.weight();
    dst_rows_ = dst.count() / dst[-1], weight_rows_ = weight.count() / weight[-1];
    const std::size_t element = size_of(spec_.dtype);
    std::size_t own = 0;
    for (const Call* call : {&forward_, &data_, &weights_, &weights_add_}) own = std::max(own, call->workspace_bytes());
    if (weights_ && spec_.bias) own = std::max(own, row_sums_bytes(dst_rows_, spec_.out_channels, context_));
    src_at_ = align64(own);
    diff_weight_at_ =
        src_at_ + (padded() ? align64(std::size_t(spec_.src.count() / spec_.src[-1] * wide_) * element) : 0);
    needs_.workspace = diff_weight_at_;
    const std::size_t weight_bytes = align64(std::size_t(weight_rows_ * weight_channels()) * element);
    if (weights_ && !(spec_.dtype == DType::f32 && weights_add_)) needs_.workspace += weight_bytes;
    if (padded()) needs_.derived = bias_at_ = weight_bytes;
    if (copies_bias()) needs_.derived += align64(std::size_t(spec_.out_channels) * element);
  }

  std::int64_t weight_channels() const { return padded() ? wide_ : spec_.src[-1] / spec_.groups; }

  void* wide_src(const OpArgs& args) const {
    if (!padded()) return args.src[0].data;
    void* wide = at(args.workspace, src_at_);
    copy_channels(context_, {wide, spec_.dtype, wide_}, {args.src[0].data, spec_.dtype, spec_.src[-1]},
                  spec_.src.count() / spec_.src[-1]);
    return wide;
  }

  void backward_weights(const OpArgs& args) {
    const Tensor& home = args.diff_weight[0];
    const bool add = args.mode[0] == GradMode::add, direct = spec_.dtype == DType::f32 && (!add || weights_add_);
    void* diff = direct ? home.data : at(args.workspace, diff_weight_at_);
    Call& call = direct && add ? weights_add_ : weights_;
    call.run(handle_, {wide_src(args), diff, args.diff_dst.data}, args.workspace);
    if (direct) return;
    if (padded())
      copy_channels(context_, {home.data, DType::f32, spec_.src[-1]}, {diff, spec_.dtype, wide_}, weight_rows(),
                    args.mode[0]);
    else
      accumulate(context_, home.as<float>(), diff, spec_.dtype, home.count(), args.mode[0]);
  }

  ConvSpec spec_;
  Context context_;
  cudnnHandle_t handle_;
  std::int64_t wide_ = 0;  // channels that cuDNN sees
  std::int64_t dst_rows_ = 0, weight_rows_ = 0;
  bool fused_bias_ = false;
  Call forward_, data_, weights_, weights_add_;
  std::size_t src_at_ = 0, diff_weight_at_ = 0;  // in the workspace
  std::size_t bias_at_ = 0;                      // in derived
  Needs needs_;
};

}  // namespace

std::unique_ptr<Op> make_conv(const ConvSpec& spec, const Context& context, Cudnn& library) {
  spec.dst();  // checks the spec
  return std::make_unique<Conv>(spec, context, library);
}

}  // namespace millrace::cuda
