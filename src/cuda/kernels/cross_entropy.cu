// Cross-entropy. The losses of single positions, or of parts of all positions, are added up by one block.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/cross_entropy_kernels.hpp"
#include "cuda/kernels/dice.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/row_loss.hpp"

namespace millrace::cuda {
namespace {

constexpr std::size_t max_cached_bytes = 40 << 10;  // so that several blocks fit on a multiprocessor
constexpr int max_threads = 512;

class CrossEntropy : public Op {
 public:
  CrossEntropy(const CrossEntropySpec& spec, const LaunchContext& context, Device& device)
      : spec_(spec),
        context_(context),
        positions_(spec.src.count() / std::max<std::int64_t>(1, spec.classes())),
        classes_(spec.classes()),
        losses_(few() ? (positions_ + few_classes_part - 1) / few_classes_part : positions_) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    spec_.check();
    for (const float w : spec_.class_weights) sum_of_weights_ += double(w);
    if (spec_.class_weights.empty()) sum_of_weights_ = double(classes_);
    const auto upload = [&](const std::vector<float>& values) {
      Buffer out(device, MemoryKind::device, values.size() * sizeof(float));
      device.copy_to_device(Stream::compute, out.data(), values.data(), values.size() * sizeof(float));
      return out;
    };
    if (!spec_.class_weights.empty()) weights_ = upload(spec_.class_weights);
    if (!spec_.mix) return;
    const std::vector<float> table = mix_table(*spec_.mix);
    mix_table_ = upload(table);
    device.synchronize();  // the copy reads `table`
  }
  MemoryRequirements memory_requirements() const override {
    const auto losses = std::size_t(losses_), rows = std::size_t(spec_.src[0]);
    if (spec_.dice <= 0) return {losses * sizeof(RowLoss), 0, 0};
    const DiceShape shape = DiceShape::of(spec_);
    return {(losses + rows) * sizeof(RowLoss) + rows * std::size_t(shape.parts * shape.classes) * sizeof(DiceSums) +
                rows * std::size_t(shape.slopes()) * sizeof(float),
            0, 0};
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      // Loads and stores are aligned alike. The tensors of a program begin at 64-byte boundaries.
      const auto diff = spec_.mode == Mode::train ? reinterpret_cast<std::uintptr_t>(args.diff_src[0].data) : 0;
      if (few())
        few_classes<T>(args);
      else if ((reinterpret_cast<std::uintptr_t>(args.src[0].data) - diff) % 16 == 0 || diff == 0)
        rows<T, pack_size<T>>(args);
      else
        rows<T, 1>(args);
    });
    if (spec_.dice > 0) dispatch_dtype(spec_.dtype, [&](auto zero) { add_dice<decltype(zero)>(args); });
    add_row_losses(context_, args.state->losses + spec_.term.number, static_cast<RowLoss*>(args.workspace),
                   losses_ + (spec_.dice > 0 ? spec_.src[0] : 0));
  }
  void backward(const OpArgs&) override {}

 private:
  bool few() const { return classes_ <= max_few_classes; }
  template <class T>
  CrossEntropyArgs<T> kernel_args(const OpArgs& args) const {
    const bool train = spec_.mode == Mode::train;
    auto* const metrics = train ? nullptr : static_cast<std::uint64_t*>(args.metrics);
    return {.logits = args.src[0].as<T>(),
            .labels = args.src[1].as<std::int32_t>(),
            .diff = train ? args.diff_src[0].as<T>() : nullptr,
            .losses = static_cast<RowLoss*>(args.workspace),
            .state = args.state,
            .classes = int(classes_),
            .smoothing = spec_.label_smoothing,
            .divisor = spec_.divisor(),
            .weights = weights_.as<float>(),
            .sum_of_weights = sum_of_weights_,
            .confusion = spec_.confusion_count() > 0 ? metrics : nullptr,
            .scores = metrics && spec_.histogram_count() > 0 ? metrics + spec_.confusion_count() : nullptr,
            .ids = spec_.mix ? args.src[2].as<std::int64_t>() : nullptr,
            .mixer = spec_.mix ? Mixer(*spec_.mix, mix_table_.as<float>()) : Mixer()};
  }
  template <class T>
  void few_classes(const OpArgs& args) const {
    const auto kernel = kernel_args<T>(args);
    const std::size_t counts = kernel.confusion ? std::size_t(classes_ * classes_) * sizeof(std::uint64_t) : 0;
    launch(context_, losses_, even_threads(std::min(positions_, few_classes_part), 256), counts,
           CrossEntropyOfFewClasses<T>{kernel, positions_});
  }
  template <class T, int n>
  void rows(const OpArgs& args) const {
    const std::size_t bytes = std::size_t(classes_) * sizeof(float);
    const bool cached = bytes <= max_cached_bytes;
    launch<max_threads, 2>(context_, positions_, even_threads(std::max<std::int64_t>(classes_ / n, 1), max_threads),
                           cached ? bytes : 0, CrossEntropyRow<T, n>{kernel_args<T>(args), cached});
  }

  // The Dice losses lie behind those of the positions.
  template <class T>
  void add_dice(const OpArgs& args) const {
    const std::int64_t images = spec_.src[0];
    const DiceShape shape = DiceShape::of(spec_);
    RowLoss* const losses = static_cast<RowLoss*>(args.workspace) + losses_;
    auto* const sums = reinterpret_cast<DiceSums*>(losses + images);
    auto* const slopes = reinterpret_cast<float*>(sums + images * shape.parts * shape.classes);
    const T* const x = args.src[0].as<T>();
    const auto* const labels = args.src[1].as<std::int32_t>();
    launch(context_, images * shape.parts, dice_threads, dice_threads * (sizeof(DiceSums) + sizeof(Softmax)),
           SumDice<T>{x, labels, sums, shape});
    launch(context_, images, dice_threads, 0, CombineDice{sums, losses, slopes, weights_.as<float>(), shape});
    if (spec_.mode == Mode::train && args.diff_src[0])
      launch(context_, images * shape.parts, dice_threads, 0,
             AddDiceGradient<T>{x, labels, args.diff_src[0].as<T>(), slopes, args.state, shape});
  }

  CrossEntropySpec spec_;
  LaunchContext context_;
  std::int64_t positions_, classes_, losses_;  // of all rows; losses: of blocks
  double sum_of_weights_ = 0;
  Buffer weights_, mix_table_;  // in device memory; weights_: by class
};

}  // namespace

std::unique_ptr<Op> make_cross_entropy(const CrossEntropySpec& spec, const LaunchContext& context, Device& device) {
  return std::make_unique<CrossEntropy>(spec, context, device);
}

}  // namespace millrace::cuda
