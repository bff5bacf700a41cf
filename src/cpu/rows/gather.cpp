// Blocks in another order. Each thread writes whole blocks of the result, in both directions.
#include <cstring>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

// Calls body(begin, end) for ranges of blocks, of which each has `size` elements.
template <class Body>
void each_block_range(std::int64_t blocks, std::int64_t size, const Body& body) {
  parallel_ranges(blocks, std::max<std::int64_t>(1, 8 * tile_count / size), body);
}

// Blocks of one element. T has its size.
template <class T>
void gather_elements(T* to, const T* from, const std::int32_t* index, std::int64_t count) {
  for (std::int64_t b = 0; b < count; ++b) to[b] = index[b] < 0 ? T(0) : from[index[b]];
}

class Gather : public Op {
 public:
  explicit Gather(const GatherSpec& spec)
      : spec_(checked(spec)),
        blocks_(spec.blocks()),
        copies_(spec.mode == Mode::train ? Places(spec.index, blocks_) : Places({}, 0)) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    const std::int64_t count = spec_.index.size();
    const std::int32_t* const index = spec_.index.values().data();
    each_block_range(spec_.outer() * count, spec_.size, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end;) {
        const std::int64_t outer = at / count, first = at % count, n = std::min(count - first, end - at);
        copy_blocks(args, outer, first, index + first, n);
        at += n;
      }
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    const Tensor& to = args.diff_src[0];
    each_block_range(spec_.outer() * blocks_, spec_.size, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t outer = block / blocks_, own = block % blocks_;
        const std::int32_t first = copies_.begin[std::size_t(own)], last = copies_.begin[std::size_t(own) + 1];
        const auto from = [&](std::int32_t i) {
          return (outer * spec_.index.size() + copies_.places[std::size_t(i)]) * spec_.size;
        };
        std::byte* const target = element(to, block * spec_.size);
        const std::size_t bytes = std::size_t(spec_.size) * size_of(spec_.dtype);
        if (first == last)
          std::memset(target, 0, bytes);
        else if (last - first == 1)
          std::memcpy(target, element(args.diff_dst, from(first)), bytes);
        else
          sum_copies(to, block * spec_.size, args.diff_dst, last - first,
                     [&](std::int32_t i) { return from(first + i); });
      }
    });
  }

 private:
  static const GatherSpec& checked(const GatherSpec& spec) {
    spec.check();
    return spec;
  }

  // n blocks of the result, from block `first` of an outer index on.
  void copy_blocks(const OpArgs& args, std::int64_t outer, std::int64_t first, const std::int32_t* index,
                   std::int64_t n) const {
    const std::int64_t size = spec_.size, from = outer * blocks_ * size,
                       to = (outer * spec_.index.size() + first) * size;
    const std::byte* const source = element(args.src[0], from);
    std::byte* const target = element(args.dst, to);
    const std::size_t bytes = std::size_t(size) * size_of(spec_.dtype);
    if (size == 1 && bytes == 4)
      return gather_elements(reinterpret_cast<std::uint32_t*>(target), reinterpret_cast<const std::uint32_t*>(source),
                             index, n);
    if (size == 1 && bytes == 2)
      return gather_elements(reinterpret_cast<std::uint16_t*>(target), reinterpret_cast<const std::uint16_t*>(source),
                             index, n);
    for (std::int64_t b = 0; b < n; ++b)
      if (index[b] < 0)
        std::memset(target + std::size_t(b) * bytes, 0, bytes);
      else
        std::memcpy(target + std::size_t(b) * bytes, source + std::size_t(index[b]) * bytes, bytes);
  }

  template <class From>
  void sum_copies(const Tensor& to, std::int64_t at, const Tensor& from, std::int32_t count, const From& begin) const {
    Tile sum, read;
    for (std::int64_t lane = 0; lane < spec_.size; lane += tile_count) {
      const std::int64_t n = std::min(tile_count, spec_.size - lane);
      float* const out = float_target(to, at + lane, sum);
      std::copy_n(read_floats(from, begin(0) + lane, n, read), n, out);
      for (std::int32_t i = 1; i < count; ++i) add(out, out, read_floats(from, begin(i) + lane, n, read), n);
      write_floats(to, at + lane, n, out);
    }
  }

  GatherSpec spec_;
  std::int64_t blocks_;
  Places copies_;
};

}  // namespace

std::unique_ptr<Op> make_gather(const GatherSpec& spec) { return std::make_unique<Gather>(spec); }

}  // namespace millrace::cpu
