// Concatenation and slices. Elements are moved as they are stored.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// A tensor of blocks, and the part of each block from `begin` on. Counted in packs.
template <class T>
struct Part {
  T* data;
  std::int64_t begin, stride;
};

// Index i is a pack of the part that is written. from.data null: it is filled with zeros.
template <class T, int n>
struct MovePart {
  Part<T> to;
  Part<const T> from;
  std::int64_t size;  // of the part
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t block = i / size, at = i - block * size;
    T* const target = to.data + (block * to.stride + to.begin + at) * n;
    Pack<T, n> pack{};
    if (from.data) pack = *reinterpret_cast<const Pack<T, n>*>(from.data + (block * from.stride + from.begin + at) * n);
    store_pack(target, pack);
  }
};

struct Blocks {
  LaunchContext context;
  DType dtype;
  std::int64_t count;

  // Counted in elements. from null: zeros.
  void move(const Tensor& to, std::int64_t to_begin, std::int64_t to_stride, const Tensor* from,
            std::int64_t from_begin, std::int64_t from_stride, std::int64_t size) const {
    if (size == 0) return;
    dispatch_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const target = to.as<T>();
      const T* const source = from ? from->as<T>() : nullptr;
      const bool wide =
          (to_begin | to_stride | from_begin | from_stride | size) % n == 0 && aligned(target, n) && aligned(source, n);
      if (wide)
        for_each(
            context, count * size / n,
            MovePart<T, n>{{target, to_begin / n, to_stride / n}, {source, from_begin / n, from_stride / n}, size / n});
      else
        for_each(context, count * size,
                 MovePart<T, 1>{{target, to_begin, to_stride}, {source, from_begin, from_stride}, size});
    });
  }
};

class Concat : public Op {
 public:
  Concat(const ConcatSpec& s, const LaunchContext& context)
      : first_(block_size(s.src, s.axis)),
        second_(block_size(s.other, s.axis)),
        blocks_{context, s.dtype, s.src.count() / first_} {
    dispatch_dtype(s.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void forward(const OpArgs& args) override {
    const std::int64_t stride = first_ + second_;
    blocks_.move(args.dst, 0, stride, &args.src[0], 0, first_, first_);
    blocks_.move(args.dst, first_, stride, &args.src[1], 0, second_, second_);
  }
  void backward(const OpArgs& args) override {
    const std::int64_t stride = first_ + second_;
    if (args.diff_src[0]) blocks_.move(args.diff_src[0], 0, first_, &args.diff_dst, 0, stride, first_);
    if (args.diff_src[1]) blocks_.move(args.diff_src[1], 0, second_, &args.diff_dst, first_, stride, second_);
  }

 private:
  std::int64_t first_, second_;
  Blocks blocks_;
};

class Slice : public Op {
 public:
  Slice(const SliceSpec& s, const LaunchContext& context)
      : stride_(block_size(s.src, s.axis)),
        size_(block_size(s.dst(), s.axis)),
        begin_(s.begin * (stride_ / s.src[s.axis])),
        blocks_{context, s.dtype, s.src.count() / stride_} {
    dispatch_dtype(s.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void forward(const OpArgs& args) override { blocks_.move(args.dst, 0, size_, &args.src[0], begin_, stride_, size_); }
  void backward(const OpArgs& args) override {
    const Tensor& diff = args.diff_src[0];
    if (!diff) return;
    const std::int64_t end = begin_ + size_;
    blocks_.move(diff, 0, stride_, nullptr, 0, 0, begin_);
    blocks_.move(diff, begin_, stride_, &args.diff_dst, 0, size_, size_);
    blocks_.move(diff, end, stride_, nullptr, 0, 0, stride_ - end);
  }

 private:
  std::int64_t stride_, size_, begin_;
  Blocks blocks_;
};

}  // namespace

std::unique_ptr<Op> make_concat(const ConcatSpec& spec, const LaunchContext& context) {
  return std::make_unique<Concat>(spec, context);
}
std::unique_ptr<Op> make_slice(const SliceSpec& spec, const LaunchContext& context) {
  return std::make_unique<Slice>(spec, context);
}

}  // namespace millrace::cuda
