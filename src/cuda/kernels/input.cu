// The input pass. If rows only need normalising, one pointwise loop does it. All other work runs in the kernels that
// assign separate blocks to each sample (input_kernels.hpp).
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/input_augmented.hpp"
#include "cuda/kernels/input_kernels.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// Calls body(reader) with a reader of the stored values, from element `first` on.
template <class Body>
void dispatch_stored_values(const Tensor& raw, std::int64_t first, const Body& body) {
  switch (raw.dtype) {
    case DType::u8:
      return body(StoredValues<std::uint8_t>{raw.as<std::uint8_t>() + first});
    case DType::i16:
      return body(StoredValues<std::int16_t>{raw.as<std::int16_t>() + first});
    case DType::f32:
      return body(StoredValues<float>{raw.as<float>() + first});
    default:
      return body(StoredValuesOfAnyType{raw.data, raw.dtype, first});
  }
}

void check_indices(const InputSpec& spec) {
  const std::int64_t largest = std::max(spec.src.row_count(), spec.dst().row_count());
  if (largest > max_index)
    fail(Exit::config,
         "input: samples {} have {} values, more than the {} that the kernels can index. set data.subvolume, or store "
         "smaller samples",
         spec.src.str(), largest, max_index);
  if (std::max(spec.crop_pad, spec.cutout) > max_index)
    fail(Exit::config, "input: crop_pad and cutout must be at most {}", max_index);
}

class Input : public Op {
 public:
  Input(const InputSpec& spec, const LaunchContext& context, Device& device)
      : spec_(spec),
        context_(context),
        channels_(spec.used_channels()),
        values_(input_channels(spec)),
        strides_(input_strides(spec)),
        augmenter_(spec),
        jitter_(values_),
        extents_(extents_of(spec.dst())),
        stored_(extents_of(spec.src)) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    check_indices(spec_);
    for (const InputChannel& c : values_) host_affine_.push_back({c.factor, c.offset});
    for (const InputChannel& c : values_) host_affine_.push_back({c.gain, c.shift});
    affine_ = copy_to_device(device, host_affine_);
    if (!strides_.each.empty()) channel_strides_ = copy_to_device(device, strides_.each);
  }

  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    const bool in_order = strides_.contiguous && spec_.subvolume.empty() && spec_.padded_channels == 0;
    dispatch_dtype(spec_.dtype, [&](auto to) {
      using T = decltype(to);
      T* dst = args.dst.as<T>();
      if (!augmenter_.on() && in_order)
        return dispatch_sample_dtype(spec_.raw, [&](auto from) { contiguous(dst, args.src[0].as<decltype(from)>()); });
      dispatch_stored_values(args.src[0], first(), [&](const auto& src) {
        if (augmenter_.on() && augmenter_.has_random_resized_crop())
          augmented<ResizedCrop>(args, dst, src);
        else
          augmented<CropFlip>(args, dst, src);
      });
    });
  }
  void backward(const OpArgs&) override {}

 private:
  template <class T>
  static Buffer copy_to_device(Device& device, const std::vector<T>& values) {
    Buffer out(device, MemoryKind::device, values.size() * sizeof(T));
    device.copy_to_device(Stream::compute, out.data(), values.data(), values.size() * sizeof(T));
    return out;
  }
  static Extents extents_of(const Shape& shape) {
    const auto [depth, height, width] = spatial_extents(shape);
    return {int(depth), int(height), int(width)};
  }
  Scales scales() const {
    return {affine_.as<Affine>(), affine_.as<Affine>() + channels_, spec_.transform == Transform::log1p};
  }
  StoredStrides strides() const {
    return {strides_.each.empty() ? nullptr : channel_strides_.as<InputStrides::Channel>(), int(strides_.pixel_step),
            int(strides_.channel_step)};
  }
  std::int64_t first() const { return strides_.each.empty() ? strides_.first : 0; }

  template <class Raw, class T>
  void contiguous(T* dst, const Raw* src) const {
    constexpr int n = 16 / int(std::max(sizeof(Raw), sizeof(T)));
    const bool wide = aligned(dst, n) && aligned(src, n);
    in_slices(spec_.src.count(), channels_ * n, max_index, [&](std::int64_t begin, std::int64_t count) {
      vectorized_for_each<n>(context_, count, wide,
                             NormalizeContiguous<Raw, T>{dst + begin, src + begin, scales(), Divider(channels_)});
    });
  }

  // Pixels of 4 or 8 channels are frequent: images are padded to them, and simulations store 4 fields.
  template <class Sampling, class From, class T>
  void augmented(const OpArgs& args, T* dst, const From& src) const {
    const std::int64_t dst_channels = channels_ + spec_.padded_channels;
    if constexpr (!std::is_same_v<From, StoredValuesOfAnyType>)
      if (strides_.each.empty() && dst_channels == 4) return launch_augmented<Sampling, 4>(args, dst, src);
    if constexpr (std::is_same_v<From, StoredValues<std::uint8_t>>)
      if (strides_.each.empty() && dst_channels == 8) return launch_augmented<Sampling, 8>(args, dst, src);
    launch_augmented<Sampling, 0>(args, dst, src);
  }
  template <class Sampling, int whole_pixels, class From, class T>
  void launch_augmented(const OpArgs& args, T* dst, const From& src) const {
    using Kernel = NormalizeAugmented<From, T, Sampling, whole_pixels>;
    const std::int64_t rows = spec_.src[0], row_count = spec_.dst().row_count(), items = Kernel::item_count(row_count);
    const int threads = int(std::clamp<std::int64_t>((items + 31) / 32 * 32, 32, each_threads));
    // Several items for each thread, since drawing the augmentation takes as long as an item.
    const std::int64_t enough_blocks = std::int64_t(context_.multiprocessors) * 16;
    const std::int64_t blocks = std::clamp<std::int64_t>((enough_blocks + rows - 1) / rows, 1,
                                                         std::max<std::int64_t>(1, items / (threads * 4)));
    const Kernel kernel{dst,
                        src,
                        {stored_},
                        scales(),
                        strides(),
                        args.src[1].as<std::int64_t>(),
                        args.state,
                        augmenter_,
                        jitter_,
                        extents_,
                        int(channels_),
                        int(channels_ + spec_.padded_channels),
                        int(row_count),
                        spec_.src.row_count(),
                        Divider(blocks),
                        Divider(extents_.width),
                        Divider(extents_.height),
                        Divider(channels_ + spec_.padded_channels),
                        row_count % Kernel::n == 0 && aligned(dst, Kernel::n)};
    launch(context_, rows * blocks, threads, sizeof(typename Kernel::Sample), kernel);
  }

  InputSpec spec_;
  LaunchContext context_;
  std::int64_t channels_;
  std::vector<InputChannel> values_;
  InputStrides strides_;
  Augmenter augmenter_;
  ColorJitter jitter_;
  Extents extents_, stored_;         // of dst, of src
  std::vector<Affine> host_affine_;  // all inner ones, then all outer ones; outlives the asynchronous copy
  Buffer affine_, channel_strides_;  // on the device
};

}  // namespace

std::unique_ptr<Op> make_input(const InputSpec& spec, const LaunchContext& context, Device& device) {
  return std::make_unique<Input>(spec, context, device);
}

}  // namespace millrace::cuda
