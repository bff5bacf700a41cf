// Concatenation and slices. Elements are moved as they are stored.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// A tensor of blocks, and the part of each block from `begin` on.
template <class T>
struct Part {
  T* data;
  std::int64_t begin, stride;
};

// Index i is a pack of the parts of some blocks that are written. from.data null: they are filled with zeros.
template <class T, int n>
struct MovePart {
  Part<T> to;
  Part<const T> from;
  Divider by_size;  // of the part
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int at = int(i);
    const std::int64_t block = by_size.split(at);
    T* const target = to.data + (block * to.stride + to.begin + at) * n;
    Pack<T, n> pack{};
    if (from.data) pack = *reinterpret_cast<const Pack<T, n>*>(from.data + (block * from.stride + from.begin + at) * n);
    store_pack(target, pack);
  }
};

class Blocks {
 public:
  Blocks(const LaunchContext& context, DType dtype, std::int64_t count)
      : context(context), dtype(dtype), count(count) {}

  // Counted in elements. from null: zeros.
  void move(const Tensor& to, std::int64_t to_begin, std::int64_t to_stride, const Tensor* from,
            std::int64_t from_begin, std::int64_t from_stride, std::int64_t size) const {
    if (size == 0) return;
    const auto as_type = [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const target = to.as<T>();
      const T* const source = from ? from->as<T>() : nullptr;
      const bool wide =
          (to_begin | to_stride | from_begin | from_stride | size) % n == 0 && aligned(target, n) && aligned(source, n);
      wide ? run<T, n>({target, to_begin, to_stride}, {source, from_begin, from_stride}, size)
           : run<T, 1>({target, to_begin, to_stride}, {source, from_begin, from_stride}, size);
    };
    dtype == DType::u8 ? as_type(std::uint8_t()) : dispatch_dtype(dtype, as_type);
  }

 private:
  template <class T, int n>
  void run(const Part<T>& to, const Part<const T>& from, std::int64_t size) const {
    const std::int64_t packs = size / n;
    if (packs > max_index)
      fail(Exit::config, "concat or slice: a part of {} values is more than the kernels can index", size);
    in_slices(count * packs, packs, max_index, [&](std::int64_t begin, std::int64_t many) {
      const std::int64_t block = begin / packs;
      for_each(context, many,
               MovePart<T, n>{{to.data + block * to.stride, to.begin / n, to.stride / n},
                              {from.data ? from.data + block * from.stride : nullptr, from.begin / n, from.stride / n},
                              Divider(packs)});
    });
  }

  LaunchContext context;
  DType dtype;
  std::int64_t count;
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
    if (s.dtype != DType::u8) dispatch_dtype(s.dtype, [](auto) {});
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
