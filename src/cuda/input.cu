// The input pass. Without augmentation, change of layout and channels of zeros it is pointwise; else blocks belong to
// samples, so that a thread draws a sample's augmentation once and then makes many packs of it.
#include <algorithm>

#include "kernels.hpp"
#include "millrace/ops/augmentation.hpp"
#include "packs.hpp"
#include "with_type.hpp"

namespace millrace::cuda {
namespace {

struct alignas(8) Affine {
  float factor, offset;
  template <class Raw>
  MR_BODY float of(Raw raw) const {
    return widen(raw) * factor + offset;
  }
};

template <class Raw, class T>
struct Straight {
  T* dst;
  const Raw* src;
  const Affine* affine;
  std::int64_t channels;
  template <int n>
  MR_BODY void at(std::int64_t i) const {
    const Pack<Raw, n> raw = *reinterpret_cast<const Pack<Raw, n>*>(src + i);
    std::int64_t c = channels == 1 ? 0 : i % channels;
    float y[n];
    for (int k = 0; k < n; ++k) {
      y[k] = affine[c].of(raw.v[k]);
      if (++c == channels) c = 0;
    }
    store(dst + i, y);
  }
};

template <class Raw, class T>
struct Moved {
  T* dst;
  const Raw* src;
  const Affine* affine;
  const std::int64_t* ids;
  const StepState* state;
  Augmenter augmenter;
  std::int64_t depth, height, width, channels, dst_channels;
  std::int64_t row_blocks;  // blocks of one sample
  bool channels_first, packs;

  template <class Block>
  MR_BODY void operator()(Block& block) const {
    constexpr int n = pack_size<T>;
    const std::int64_t row = block.index() / row_blocks, block_of_row = block.index() - row * row_blocks;
    const Augmentation move = augmenter.on() ? augmenter.draw(state->epoch, ids[row]) : Augmentation{};
    const std::int64_t positions = depth * height * width, row_count = positions * dst_channels;
    const std::int64_t pixel_step = channels_first ? 1 : channels, channel_step = channels_first ? positions : 1;
    const Raw* image = src + row * positions * channels;
    T* out = dst + row * row_count;

    for (std::int64_t begin = (block_of_row * block.threads() + block.thread()) * n; begin < row_count;
         begin += row_blocks * block.threads() * n) {
      const std::int64_t pixel = begin / dst_channels, line = pixel / width, d = line / height;
      std::int64_t c = begin - pixel * dst_channels, x = pixel - line * width;
      std::int64_t y = line - d * height + move.by[1], z = d + move.by[0];
      float values[n];
      for (int k = 0; k < n; ++k) {
        const std::int64_t from_x = (move.flip ? width - 1 - x : x) + move.by[2];
        const bool inside =
            begin + k < row_count && z >= 0 && z < depth && y >= 0 && y < height && from_x >= 0 && from_x < width;
        Raw raw{};
        if (inside && c < channels) raw = image[((z * height + y) * width + from_x) * pixel_step + c * channel_step];
        const bool blank = c >= channels || move.cut(z - move.by[0], y - move.by[1], x);
        values[k] = blank ? 0 : affine[c].of(raw) * move.gain + affine[c].offset * move.lift;
        if (++c < dst_channels) continue;
        c = 0;
        if (++x < width) continue;
        x = 0;
        if (++y < height + move.by[1]) continue;
        y = move.by[1], ++z;
      }
      if (packs)
        store(out + begin, values);
      else
        for (int k = 0; k < n && begin + k < row_count; ++k) out[begin + k] = narrow<T>(values[k]);
    }
  }
};

// A random part of an image, enlarged to the whole.
template <class Raw, class T>
struct Enlarged {
  T* dst;
  const Raw* src;
  const Affine* affine;
  const std::int64_t* ids;
  const StepState* state;
  Augmenter augmenter;
  std::int64_t height, width, channels, dst_channels;
  std::int64_t row_blocks;  // blocks of one sample
  bool channels_first;

  template <class Block>
  MR_BODY void operator()(Block& block) const {
    const std::int64_t row = block.index() / row_blocks, block_of_row = block.index() - row * row_blocks;
    const Augmentation move = augmenter.draw(state->epoch, ids[row]);
    const std::int64_t pixels = height * width;
    const std::int64_t pixel_step = channels_first ? 1 : channels, channel_step = channels_first ? pixels : 1;
    const std::int64_t down = height > 1 ? width * pixel_step : 0, right = width > 1 ? pixel_step : 0;
    const Raw* image = src + row * pixels * channels;
    T* out = dst + row * pixels * dst_channels;
    for (std::int64_t pixel = block_of_row * block.threads() + block.thread(); pixel < pixels;
         pixel += row_blocks * block.threads()) {
      const std::int64_t y = pixel / width, x = pixel - y * width;
      const Augmentation::Between v = move.between(0, y, height),
                                  h = move.between(1, move.flip ? width - 1 - x : x, width);
      const bool cut = move.cut(0, y, x);
      const Raw* corner = image + (v.first * width + h.first) * pixel_step;
      for (std::int64_t c = 0; c < channels; ++c, corner += channel_step) {
        const float above = widen(corner[0]) * (1 - h.share) + widen(corner[right]) * h.share,
                    below = widen(corner[down]) * (1 - h.share) + widen(corner[down + right]) * h.share;
        const float value = affine[c].of(above * (1 - v.share) + below * v.share);
        out[pixel * dst_channels + c] = narrow<T>(cut ? 0 : value * move.gain + affine[c].offset * move.lift);
      }
      for (std::int64_t c = channels; c < dst_channels; ++c) out[pixel * dst_channels + c] = narrow<T>(0);
    }
  }
};

template <class Body>
void with_raw(DType raw, const Body& body) {
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

class Input : public Op {
 public:
  Input(const InputSpec& spec, const Context& context, Device& device)
      : spec_(spec), context_(context), channels_(spec.src[-1]), spatial_(spec.src.spatial_rank()), augmenter_(spec) {
    with_type(spec_.dtype, [](auto) {});
    with_raw(spec_.raw, [](auto) {});
    if (spatial_ > 3 || spatial_ < 0)
      fail(Exit::config, "input: samples ", spec_.src.str(), " have ", spatial_, " spatial dimensions. at most 3");
    for (const auto* values : {&spec_.mean, &spec_.std})
      if (!values->empty() && std::int64_t(values->size()) != channels_)
        fail(Exit::config, "input: mean and std have ", values->size(), " values, the samples ", channels_,
             " channels. give one a channel");
    for (int a = 0; a < spatial_; ++a) extent_[3 - spatial_ + a] = spec_.src[1 + a];
    for (std::size_t c = 0; c < std::size_t(channels_); ++c) {
      const double mean = spec_.mean.empty() ? 0 : spec_.mean[c], std = spec_.std.empty() ? 1 : spec_.std[c];
      host_affine_.push_back({float(double(spec_.scale) / std), float(-mean / std)});
    }
    const std::size_t bytes = host_affine_.size() * sizeof(Affine);
    affine_ = Buffer(device, MemoryKind::device, bytes);
    device.copy_in(Lane::compute, affine_.data(), host_affine_.data(), bytes);
  }

  Needs needs() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    const bool turns = spec_.channels_first && channels_ > 1 && spec_.src.row_count() > channels_;
    with_type(spec_.dtype, [&](auto to) {
      with_raw(spec_.raw, [&](auto from) {
        using T = decltype(to);
        using Raw = decltype(from);
        T* dst = args.dst.as<T>();
        const Raw* src = args.src[0].as<Raw>();
        if (augmenter_.on() && augmenter_.zooms())
          enlarge(args, dst, src);
        else if (augmenter_.on() || turns || spec_.zero_channels > 0)
          move(args, dst, src);
        else
          straight(dst, src);
      });
    });
  }
  void backward(const OpArgs&) override {}

 private:
  template <class Raw, class T>
  void straight(T* dst, const Raw* src) const {
    constexpr int n = 16 / int(std::max(sizeof(Raw), sizeof(T)));
    for_each_pack<n>(context_, spec_.src.count(), aligned(dst, n) && aligned(src, n),
                     Straight<Raw, T>{dst, src, affine_.as<Affine>(), channels_});
  }

  template <class Raw, class T>
  void enlarge(const OpArgs& args, T* dst, const Raw* src) const {
    const std::int64_t pixels = extent_[1] * extent_[2];
    const int threads = int(std::clamp<std::int64_t>((pixels + 31) / 32 * 32, 32, each_threads));
    const std::int64_t row_blocks = std::max<std::int64_t>(1, pixels / (threads * 4));  // about 4 pixels a thread
    launch(context_.stream, spec_.src[0] * row_blocks, threads, 0,
           Enlarged<Raw, T>{dst, src, affine_.as<Affine>(), args.src[1].as<std::int64_t>(), args.state, augmenter_,
                            extent_[1], extent_[2], channels_, channels_ + spec_.zero_channels, row_blocks,
                            spec_.channels_first});
  }

  template <class Raw, class T>
  void move(const OpArgs& args, T* dst, const Raw* src) const {
    constexpr int n = pack_size<T>;
    const std::int64_t row_count = spec_.dst().row_count(), packs = (row_count + n - 1) / n;
    const int threads = int(std::clamp<std::int64_t>((packs + 31) / 32 * 32, 32, each_threads));
    const std::int64_t row_blocks = std::max<std::int64_t>(1, packs / (threads * 4));  // about 4 packs a thread
    launch(context_.stream, spec_.src[0] * row_blocks, threads, 0,
           Moved<Raw, T>{dst, src, affine_.as<Affine>(), args.src[1].as<std::int64_t>(), args.state, augmenter_,
                         extent_[0], extent_[1], extent_[2], channels_, channels_ + spec_.zero_channels, row_blocks,
                         spec_.channels_first, row_count % n == 0 && aligned(dst, n)});
  }

  InputSpec spec_;
  Context context_;
  std::int64_t channels_;
  int spatial_;
  Augmenter augmenter_;
  std::int64_t extent_[3] = {1, 1, 1};
  std::vector<Affine> host_affine_;  // must outlive the copy
  Buffer affine_;                    // one a channel
};

}  // namespace

std::unique_ptr<Op> make_input(const InputSpec& spec, const Context& context, Device& device) {
  return std::make_unique<Input>(spec, context, device);
}

}  // namespace millrace::cuda
