// The input pass. Without augmentation, change of layout and channels of zeros it is pointwise; else blocks belong to
// samples, so that a thread draws a sample's augmentation once and then makes many packs of it.
#include <algorithm>

#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/dispatch_dtype.hpp"
#include "cuda/runtime/vectorized_loop.hpp"
#include "millrace/ops/augmentation.hpp"

namespace millrace::cuda {
namespace {

// What is stored, as floats.
template <class Raw>
struct StoredValues {
  const Raw* at;
  MR_DEVICE_INLINE float operator[](std::int64_t i) const { return widen(at[i]); }
  MR_DEVICE_INLINE StoredValues from(std::int64_t i) const { return {at + i}; }
};

// Of types that few data sets have: one kernel for all of them, which asks for the type with every value.
struct StoredValuesOfAnyType {
  const void* at;
  DType type;
  std::int64_t begin;
  template <class Raw>
  MR_DEVICE_INLINE float value(std::int64_t i) const {
    return widen(static_cast<const Raw*>(at)[begin + i]);
  }
  MR_DEVICE_INLINE float operator[](std::int64_t i) const {
    switch (type) {
      case DType::i8:
        return value<std::int8_t>(i);
      case DType::u16:
        return value<std::uint16_t>(i);
      case DType::i32:
        return value<std::int32_t>(i);
      case DType::f16:
        return value<f16>(i);
      case DType::bf16:
        return value<bf16>(i);
      default:
        return value<double>(i);
    }
  }
  MR_DEVICE_INLINE StoredValuesOfAnyType from(std::int64_t i) const { return {at, type, begin + i}; }
};

struct alignas(8) Affine {
  float factor, offset;
  MR_DEVICE_INLINE float of(float stored) const { return stored * factor + offset; }
};

// By channel of dst.
struct Scales {
  const Affine* inner;  // of stored values
  const Affine* outer;  // of their log1p; without a transform, of nothing
  bool log1p;
  MR_DEVICE_INLINE float of(float stored, std::int64_t c) const {
    const float value = inner[c].of(stored);
    return log1p ? outer[c].of(log1pf(value)) : value;
  }
  // The same of channel c of a pixel whose channel k is stored(k), with all that jitters.
  template <class StoredOf>
  MR_DEVICE_INLINE float of(const StoredOf& stored, std::int64_t c, const Augmentation& move,
                            const ColorMatrix& mix) const {
    float value;
    if (move.has_color_jitter()) {
      const float pixel[3] = {of(stored(0), 0), of(stored(1), 1), of(stored(2), 2)};
      value = mix.of(int(c), pixel);
    } else {
      value = of(stored(c), c);
    }
    const float lift = move.lift != 0 ? outer[c].offset * move.lift : 0;
    return value * move.gain + lift;
  }
};

// As InputPlaces, in a stored row from the first place on.
struct StoredStrides {
  const InputStrides::Channel* each;  // null: evenly
  std::int64_t pixel_step, channel_step;
  MR_DEVICE_INLINE std::int64_t first(std::int64_t c) const { return each ? each[c].first : c * channel_step; }
  MR_DEVICE_INLINE std::int64_t step(std::int64_t c) const { return each ? each[c].step : pixel_step; }
};

template <class Raw, class T>
struct NormalizeContiguous {
  T* dst;
  const Raw* src;
  Scales scales;
  std::int64_t channels;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    const Pack<Raw, n> raw = *reinterpret_cast<const Pack<Raw, n>*>(src + i);
    std::int64_t c = channels == 1 ? 0 : i % channels;
    float y[n];
    for (int k = 0; k < n; ++k) {
      y[k] = scales.of(widen(raw.v[k]), c);
      if (++c == channels) c = 0;
    }
    store(dst + i, y);
  }
};

// Extents of a sample; those of dst, and those stored.
struct Extents {
  std::int64_t depth, height, width;
};

template <class From, class T>
struct CropFlipNormalize {
  T* dst;
  From src;  // of the first row, at the first place
  Scales scales;
  StoredStrides places;
  const std::int64_t* ids;
  const StepState* state;
  Augmenter augmenter;
  ColorJitter colours;
  Extents extents, whole;
  std::int64_t channels, dst_channels, src_row;
  std::int64_t row_blocks;  // blocks of one sample
  bool packs;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    constexpr int n = pack_size<T>;
    const std::int64_t row = block.index() / row_blocks, block_of_row = block.index() - row * row_blocks;
    const Augmentation move =
        augmenter.on() ? augmenter.sample(state->epoch, ids[row]) : augmenter.without_randomness();
    const ColorMatrix mix = colours.mix(move);
    const std::int64_t height = extents.height, width = extents.width,
                       row_count = extents.depth * height * width * dst_channels;
    const From image = src.from(row * src_row);
    T* out = dst + row * row_count;

    for (std::int64_t begin = (block_of_row * block.threads() + block.thread()) * n; begin < row_count;
         begin += row_blocks * block.threads() * n) {
      const std::int64_t pixel = begin / dst_channels, line = pixel / width;
      std::int64_t c = begin - pixel * dst_channels, x = pixel - line * width;
      std::int64_t z = line / height, y = line - z * height;
      float values[n];
      for (int k = 0; k < n; ++k) {
        const std::int64_t from_z = (move.flip[0] ? extents.depth - 1 - z : z) + move.by[0],
                           from_y = (move.flip[1] ? height - 1 - y : y) + move.by[1],
                           from_x = (move.flip[2] ? width - 1 - x : x) + move.by[2];
        const bool inside = begin + k < row_count && from_z >= 0 && from_z < whole.depth && from_y >= 0 &&
                            from_y < whole.height && from_x >= 0 && from_x < whole.width;
        const std::int64_t place = (from_z * whole.height + from_y) * whole.width + from_x;
        const auto stored = [&](std::int64_t channel) {
          return inside ? image[place * places.step(channel) + places.first(channel)] : 0.0f;
        };
        const bool blank = c >= channels || move.cut(z, y, x);
        values[k] = blank ? 0 : scales.of(stored, c, move, mix);
        if (++c < dst_channels) continue;
        c = 0;
        if (++x < width) continue;
        x = 0;
        if (++y < height) continue;
        y = 0, ++z;
      }
      if (packs)
        store(out + begin, values);
      else
        for (int k = 0; k < n && begin + k < row_count; ++k) out[begin + k] = narrow<T>(values[k]);
    }
  }
};

// A random part of an image, enlarged to the whole.
template <class From, class T>
struct ResizedCropNormalize {
  T* dst;
  From src;  // of the first row, at the first place
  Scales scales;
  StoredStrides places;
  const std::int64_t* ids;
  const StepState* state;
  Augmenter augmenter;
  ColorJitter colours;
  std::int64_t height, width, channels, dst_channels, src_row;
  std::int64_t row_blocks;  // blocks of one sample

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t row = block.index() / row_blocks, block_of_row = block.index() - row * row_blocks;
    const Augmentation move = augmenter.sample(state->epoch, ids[row]);
    const ColorMatrix mix = colours.mix(move);
    const std::int64_t pixels = height * width;
    const From image = src.from(row * src_row);
    T* out = dst + row * pixels * dst_channels;
    for (std::int64_t pixel = block_of_row * block.threads() + block.thread(); pixel < pixels;
         pixel += row_blocks * block.threads()) {
      const std::int64_t y = pixel / width, x = pixel - y * width;
      const Augmentation::InterpolationPoint v = move.interpolation_point(0, move.flip[1] ? height - 1 - y : y, height),
                                             h = move.interpolation_point(1, move.flip[2] ? width - 1 - x : x, width);
      const bool cut = move.cut(0, y, x);
      const auto value = [&](std::int64_t c) {
        const std::int64_t step = places.step(c), right = width > 1 ? step : 0, down = height > 1 ? width * step : 0;
        const From corner = image.from(places.first(c) + (v.first * width + h.first) * step);
        const float above = corner[0] * (1 - h.share) + corner[right] * h.share,
                    below = corner[down] * (1 - h.share) + corner[down + right] * h.share;
        return above * (1 - v.share) + below * v.share;
      };
      for (std::int64_t c = 0; c < channels; ++c)
        out[pixel * dst_channels + c] = narrow<T>(cut ? 0 : scales.of(value, c, move, mix));
      for (std::int64_t c = channels; c < dst_channels; ++c) out[pixel * dst_channels + c] = narrow<T>(0);
    }
  }
};

template <class Body>
void dispatch_stored_dtype(DType raw, const Body& body) {
  switch (raw) {
    case DType::u8:
      return body(std::uint8_t{});
    case DType::i8:
      return body(std::int8_t{});
    case DType::u16:
      return body(std::uint16_t{});
    case DType::i16:
      return body(std::int16_t{});
    case DType::i32:
      return body(std::int32_t{});
    case DType::f16:
      return body(f16{});
    case DType::bf16:
      return body(bf16{});
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
    case DType::i64:
      break;
  }
  fail(Exit::config, "input: samples stored as int64 are not read. store them as int32 or a floating type");
}

// Calls body with what reads values from the first place on.
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
        spatial_(spec.src.spatial_rank()),
        values_(input_channels(spec)),
        places_(input_strides(spec)),
        augmenter_(spec),
        colours_(values_) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    std::int64_t* extents[3] = {&extents_.depth, &extents_.height, &extents_.width};
    std::int64_t* stored[3] = {&stored_.depth, &stored_.height, &stored_.width};
    for (int a = 0; a < spatial_; ++a) {
      *extents[3 - spatial_ + a] = spec_.dst()[1 + a];
      *stored[3 - spatial_ + a] = spec_.src[1 + a];
    }
    for (const InputChannel& c : values_) inner_.push_back({c.factor, c.offset});
    for (const InputChannel& c : values_) inner_.push_back({c.gain, c.shift});
    affine_ = on_device(device, inner_);
    if (!places_.each.empty()) each_ = on_device(device, places_.each);
  }

  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    const bool straight_rows = places_.contiguous && spec_.subvolume.empty() && spec_.padded_channels == 0;
    dispatch_dtype(spec_.dtype, [&](auto to) {
      using T = decltype(to);
      T* dst = args.dst.as<T>();
      if (!augmenter_.on() && straight_rows)
        return dispatch_stored_dtype(spec_.raw, [&](auto from) { contiguous(dst, args.src[0].as<decltype(from)>()); });
      dispatch_stored_values(args.src[0], first(), [&](const auto& src) {
        if (augmenter_.on() && augmenter_.has_random_resized_crop())
          enlarge(args, dst, src);
        else
          move(args, dst, src);
      });
    });
  }
  void backward(const OpArgs&) override {}

 private:
  template <class T>
  static Buffer on_device(Device& device, const std::vector<T>& values) {
    Buffer out(device, MemoryKind::device, values.size() * sizeof(T));
    device.copy_to_device(Stream::compute, out.data(), values.data(), values.size() * sizeof(T));
    return out;
  }
  Scales scales() const {
    return {affine_.as<Affine>(), affine_.as<Affine>() + channels_, spec_.transform == Transform::log1p};
  }
  StoredStrides places() const {
    return {places_.each.empty() ? nullptr : each_.as<InputStrides::Channel>(), places_.pixel_step,
            places_.channel_step};
  }
  std::int64_t first() const { return places_.each.empty() ? places_.first : 0; }

  template <class Raw, class T>
  void contiguous(T* dst, const Raw* src) const {
    constexpr int n = 16 / int(std::max(sizeof(Raw), sizeof(T)));
    vectorized_for_each<n>(context_, spec_.src.count(), aligned(dst, n) && aligned(src, n),
                           NormalizeContiguous<Raw, T>{dst, src, scales(), channels_});
  }

  template <class From, class T>
  void enlarge(const OpArgs& args, T* dst, const From& src) const {
    const std::int64_t pixels = extents_.height * extents_.width;
    const int threads = int(std::clamp<std::int64_t>((pixels + 31) / 32 * 32, 32, each_threads));
    const std::int64_t row_blocks = std::max<std::int64_t>(1, pixels / (threads * 4));  // about 4 pixels a thread
    launch(context_.stream, spec_.src[0] * row_blocks, threads, 0,
           ResizedCropNormalize<From, T>{dst, src, scales(), places(), args.src[1].as<std::int64_t>(), args.state,
                                         augmenter_, colours_, extents_.height, extents_.width, channels_,
                                         channels_ + spec_.padded_channels, spec_.src.row_count(), row_blocks});
  }

  template <class From, class T>
  void move(const OpArgs& args, T* dst, const From& src) const {
    constexpr int n = pack_size<T>;
    const std::int64_t row_count = spec_.dst().row_count(), packs = (row_count + n - 1) / n;
    const int threads = int(std::clamp<std::int64_t>((packs + 31) / 32 * 32, 32, each_threads));
    const std::int64_t row_blocks = std::max<std::int64_t>(1, packs / (threads * 4));  // about 4 packs a thread
    launch(
        context_.stream, spec_.src[0] * row_blocks, threads, 0,
        CropFlipNormalize<From, T>{dst, src, scales(), places(), args.src[1].as<std::int64_t>(), args.state, augmenter_,
                                   colours_, extents_, stored_, channels_, channels_ + spec_.padded_channels,
                                   spec_.src.row_count(), row_blocks, row_count % n == 0 && aligned(dst, n)});
  }

  InputSpec spec_;
  LaunchContext context_;
  std::int64_t channels_;
  int spatial_;
  std::vector<InputChannel> values_;
  InputStrides places_;
  Augmenter augmenter_;
  ColorJitter colours_;
  Extents extents_{1, 1, 1}, stored_{1, 1, 1};
  std::vector<Affine> inner_;  // of all channels, then the outer ones; must outlive the copy
  Buffer affine_, each_;
};

}  // namespace

std::unique_ptr<Op> make_input(const InputSpec& spec, const LaunchContext& context, Device& device) {
  return std::make_unique<Input>(spec, context, device);
}

}  // namespace millrace::cuda
