// Concatenation and slices.
#include "millrace/ops/blocks.hpp"

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

// Part of a tensor: `size` elements from `begin` on in each block of `stride` elements.
struct Blocks {
  const Tensor& tensor;
  std::int64_t begin, stride;
  std::byte* at(std::int64_t block) const { return element(tensor, block * stride + begin); }
};

void copy(const Blocks& to, const Blocks& from, std::int64_t blocks, std::int64_t size) {
  const std::size_t bytes = std::size_t(size) * size_of(to.tensor.dtype);
  parallel_ranges(blocks, std::max<std::int64_t>(1, 8 * tile_count / size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) std::copy_n(from.at(b), bytes, to.at(b));
  });
}
void clear(const Blocks& to, std::int64_t blocks, std::int64_t size) {
  if (size == 0) return;
  const std::size_t bytes = std::size_t(size) * size_of(to.tensor.dtype);
  parallel_ranges(blocks, std::max<std::int64_t>(1, 8 * tile_count / size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) std::fill_n(to.at(b), bytes, std::byte{0});
  });
}

class Concat : public Op {
 public:
  explicit Concat(const ConcatSpec& spec)
      : first_(block_size(spec.src, spec.axis)),
        second_(block_size(spec.other, spec.axis)),
        blocks_(spec.src.count() / first_) {}
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }
  void forward(const OpArgs& args) override {
    const std::int64_t stride = first_ + second_;
    copy({args.dst, 0, stride}, {args.src[0], 0, first_}, blocks_, first_);
    copy({args.dst, first_, stride}, {args.src[1], 0, second_}, blocks_, second_);
  }
  void backward(const OpArgs& args) override {
    const std::int64_t stride = first_ + second_;
    if (args.diff_src[0]) copy({args.diff_src[0], 0, first_}, {args.diff_dst, 0, stride}, blocks_, first_);
    if (args.diff_src[1]) copy({args.diff_src[1], 0, second_}, {args.diff_dst, first_, stride}, blocks_, second_);
  }

 private:
  std::int64_t first_, second_, blocks_;
};

class Slice : public Op {
 public:
  explicit Slice(const SliceSpec& spec)
      : stride_(block_size(spec.src, spec.axis)),
        size_(block_size(spec.dst(), spec.axis)),
        begin_(spec.begin * (stride_ / spec.src[spec.axis])),
        blocks_(spec.src.count() / stride_),
        dtype_(spec.dtype) {}
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }
  void forward(const OpArgs& args) override {
    // Raw samples and targets are moved as elements of another type.
    const Tensor src{args.src[0].data, dtype_, {}}, dst{args.dst.data, dtype_, {}};
    copy({dst, 0, size_}, {src, begin_, stride_}, blocks_, size_);
  }
  void backward(const OpArgs& args) override {
    const Tensor& diff = args.diff_src[0];
    if (!diff) return;
    clear({diff, 0, stride_}, blocks_, begin_);
    copy({diff, begin_, stride_}, {args.diff_dst, 0, size_}, blocks_, size_);
    clear({diff, begin_ + size_, stride_}, blocks_, stride_ - begin_ - size_);
  }

 private:
  std::int64_t stride_, size_, begin_, blocks_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<Op> make_concat(const ConcatSpec& spec) { return std::make_unique<Concat>(spec); }
std::unique_ptr<Op> make_slice(const SliceSpec& spec) { return std::make_unique<Slice>(spec); }

}  // namespace millrace::cpu
