// The input pass. If rows only need normalising, one pointwise loop does it. All other work runs in the kernels that
// assign separate blocks to each sample (input_kernels.hpp).
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
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
          resized_crop(args, dst, src);
        else
          crop_flip(args, dst, src);
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
    return {depth, height, width};
  }
  Scales scales() const {
    return {affine_.as<Affine>(), affine_.as<Affine>() + channels_, spec_.transform == Transform::log1p};
  }
  StoredStrides strides() const {
    return {strides_.each.empty() ? nullptr : channel_strides_.as<InputStrides::Channel>(), strides_.pixel_step,
            strides_.channel_step};
  }
  std::int64_t first() const { return strides_.each.empty() ? strides_.first : 0; }

  // How the blocks of one sample divide its work: a thread gets about four of `count` items.
  struct RowLaunch {
    int threads;
    std::int64_t blocks_per_row;
  };
  static RowLaunch row_launch(std::int64_t count) {
    const int threads = int(std::clamp<std::int64_t>((count + 31) / 32 * 32, 32, each_threads));
    return {threads, std::max<std::int64_t>(1, count / (threads * 4))};
  }
  template <class From, class T>
  AugmentedRows<From, T> augmented_rows(const OpArgs& args, T* dst, const From& src, const RowLaunch& shape) const {
    return {dst,
            src,
            scales(),
            strides(),
            args.src[1].as<std::int64_t>(),
            args.state,
            augmenter_,
            jitter_,
            extents_,
            channels_,
            channels_ + spec_.padded_channels,
            spec_.src.row_count(),
            shape.blocks_per_row};
  }

  template <class Raw, class T>
  void contiguous(T* dst, const Raw* src) const {
    constexpr int n = 16 / int(std::max(sizeof(Raw), sizeof(T)));
    vectorized_for_each<n>(context_, spec_.src.count(), aligned(dst, n) && aligned(src, n),
                           NormalizeContiguous<Raw, T>{dst, src, scales(), channels_});
  }

  template <class From, class T>
  void resized_crop(const OpArgs& args, T* dst, const From& src) const {
    const RowLaunch shape = row_launch(extents_.height * extents_.width);
    launch<each_threads, 2>(context_.stream, spec_.src[0] * shape.blocks_per_row, shape.threads, 0,
                            ResizedCropNormalize<From, T>{augmented_rows(args, dst, src, shape)});
  }

  template <class From, class T>
  void crop_flip(const OpArgs& args, T* dst, const From& src) const {
    constexpr int n = pack_size<T>;
    const std::int64_t row_count = spec_.dst().row_count();
    const RowLaunch shape = row_launch((row_count + n - 1) / n);
    launch<each_threads, 2>(context_.stream, spec_.src[0] * shape.blocks_per_row, shape.threads, 0,
                            CropFlipNormalize<From, T>{augmented_rows(args, dst, src, shape), stored_,
                                                       row_count % n == 0 && aligned(dst, n)});
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
