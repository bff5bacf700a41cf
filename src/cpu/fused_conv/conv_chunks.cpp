#include "cpu/fused_conv/conv_chunks.hpp"

#include <algorithm>

#include "cpu/common/ops.hpp"
#include "cpu/common/threads.hpp"
#include "cpu/norm/batch_norm_bf16.hpp"

namespace millrace::cpu {
namespace {

// Of source and result. The second-level cache also holds the gradients of both, and the source before the norm.
constexpr std::int64_t chunk_bytes = 512 << 10;

bool has_one_tap(const Window& w) {
  return std::all_of(w.kernel.begin(), w.kernel.begin() + w.rank, [](std::int64_t taps) { return taps == 1; });
}
bool is_pointwise(const Window& w) {
  return has_one_tap(w) && std::all_of(w.stride.begin(), w.stride.begin() + w.rank, [](auto s) { return s == 1; }) &&
         std::all_of(w.pad.begin(), w.pad.begin() + w.rank, [](auto pad) { return pad == 0; });
}

std::int64_t rows_of(const Shape& shape) { return shape.count() / shape[-1]; }
std::int64_t bytes_of(const ConvSpec& s) { return (s.src.count() + s.dst().count()) * std::int64_t(size_of(s.dtype)); }
std::int64_t up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// Lines of the source that a line of the result reads.
std::int64_t reach(const Window& w) { return w.dilation[0] * (w.kernel[0] - 1) + 1; }

// How many lines of the result a chunk has; 0: an image cannot or need not be cut. The first chunk must reach beyond
// the padding.
std::int64_t lines_of_chunk(const ConvSpec& s) {
  const Window& w = s.window;
  const std::int64_t lines = s.dst()[1], image = bytes_of(s) / s.src[0];
  if (image <= chunk_bytes || reach(w) < w.stride[0] || w.pad[0] >= reach(w)) return 0;
  const std::int64_t each = std::max<std::int64_t>(chunk_bytes * lines / image, 1);
  const std::int64_t even = std::max(up(lines, up(lines, each)), up(w.pad[0], w.stride[0]));
  return even < lines ? even : 0;
}

}  // namespace

ConvSpec without_norms(ConvSpec s) {
  s.produces_sums = s.produces_diff_sums = s.normalises_src = s.normalises_diff_dst = false;
  return s;
}

// Measured in MobileNetV2 and ResNet-50 (docs/benchmarks/2026-11-batch-norm-cpu.md): tensors that are not in the cache
// anyway, few multiplications for each byte, chunks that fit into the cache, and work for all threads.
bool chunking_pays(const ConvSpec& s) {
  constexpr double least_bytes = 8e6, most_flops_per_byte = 30;
  const double bytes = double(bytes_of(s));
  const bool native = s.dtype == DType::f32 || (s.dtype == DType::bf16 && batch_norm::has_bf16_kernels());
  if (!native || !(is_depthwise(s) || has_one_tap(s.window)) || bytes < least_bytes ||
      s.flops() > most_flops_per_byte * bytes)
    return false;
  const ConvChunks chunks(s);
  return bytes_of(chunks.spec(false)) <= 2 * chunk_bytes &&
         (thread_count() == 1 || chunks.groups() >= 2 * thread_count());
}

ConvChunks::ConvChunks(const ConvSpec& s) : chunk_(without_norms(s)), last_(chunk_) {
  const bool of_pixels = is_pointwise(s.window);
  const std::int64_t lines = of_pixels ? 0 : lines_of_chunk(s);
  lines > 0 ? by_lines(s, lines) : by_units(s, of_pixels);
}

void ConvChunks::by_lines(const ConvSpec& s, std::int64_t lines) {
  const Window& w = s.window;
  const std::int64_t line = rows_of(s.src) / s.src[0] / s.src[1], all = s.dst()[1];
  groups_ = s.src[0];
  of_group_ = up(all, lines);
  step_ = lines * w.stride[0] * line;
  image_rows_ = s.src[1] * line;
  pad_rows_ = w.pad[0] * line;
  shared_rows_ = (reach(w) - w.stride[0]) * line;
  for (ConvSpec* of : {&chunk_, &last_}) {
    of->src[0] = 1;
    of->window.pad[0] = 0;
  }
  chunk_.src[1] = (lines - 1) * w.stride[0] + reach(w);
  last_.src[1] = s.src[1] + 2 * w.pad[0] - (of_group_ - 1) * lines * w.stride[0];
}

// A pixel counts as an image of one pixel in a line.
void ConvChunks::by_units(const ConvSpec& s, bool of_pixels) {
  const std::int64_t units = of_pixels ? rows_of(s.src) : s.src[0];
  std::int64_t each = up(units, std::clamp<std::int64_t>(bytes_of(s) / chunk_bytes, 1, units));
  if (of_pixels) each = std::min(units, up(each, 16) * 16);
  groups_ = up(units, each);
  const int axis = of_pixels ? s.src.rank - 2 : 0;
  for (ConvSpec* of : {&chunk_, &last_})
    for (int a = 0; of_pixels && a < axis; ++a) of->src[a] = 1;
  chunk_.src[axis] = each;
  last_.src[axis] = units - (groups_ - 1) * each;
  step_ = image_rows_ = rows_of(chunk_.src);
}

ConvChunks::Place ConvChunks::place(std::int64_t group, std::int64_t index) const {
  Place p;
  const std::int64_t rows_of_result = rows_of(chunk_.dst());
  if (of_group_ == 1) {
    p.last = group + 1 == groups_;
    p.src = group * step_;
    p.rows = p.final_rows = rows_of(spec(p.last).src);
    p.dst = group * rows_of_result;
    return p;
  }
  p.last = index + 1 == of_group_;
  const std::int64_t from = index * step_ - pad_rows_, to = from + rows_of(spec(p.last).src);
  const std::int64_t begin = std::max<std::int64_t>(from, 0), end = std::min(to, image_rows_);
  p.src = group * image_rows_ + begin;
  p.rows = end - begin;
  p.above = begin - from;
  p.below = to - end;
  p.final_rows = p.last ? p.rows : std::min(from + step_, end) - begin;
  p.dst = group * ((of_group_ - 1) * rows_of_result + rows_of(last_.dst())) + index * rows_of_result;
  return p;
}

}  // namespace millrace::cpu
