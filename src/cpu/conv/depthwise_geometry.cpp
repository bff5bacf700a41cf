#include "cpu/conv/depthwise_geometry.hpp"

#include <algorithm>

#include "cpu/common/threads.hpp"
#include "cpu/matmul/float_matmul.hpp"
#include "cpu/onednn/onednn.hpp"
#include "millrace/base/align.hpp"

namespace millrace::cpu {

namespace {

constexpr std::int64_t most_copied = 192 << 10;  // bytes of a task's rows: part of the second-level cache
constexpr std::int64_t least_width = 64;         // of a task that has a part of each row
constexpr std::int64_t tasks_of_thread = 8;      // where there are enough rows

using depthwise::lanes;

}  // namespace

DepthwiseAxis DepthwiseAxis::forward(const Extent& e) {
  DepthwiseAxis out{e.stride, 1, -e.pad, (e.kernel - 1) * e.dilation - e.pad, {{}}};
  for (std::int64_t k = 0; k < e.kernel; ++k) out.taps[0].push_back({k, k * e.dilation - e.pad});
  return out;
}

DepthwiseAxis DepthwiseAxis::data(const Extent& e) {
  DepthwiseAxis out{1, e.stride, INT64_MAX, INT64_MIN, std::vector<std::vector<Tap>>(std::size_t(e.stride))};
  for (std::int64_t q = 0; q < e.stride; ++q)
    for (std::int64_t k = e.kernel - 1; k >= 0; --k) {
      const std::int64_t at = q + e.pad - k * e.dilation;
      if (at % e.stride != 0) continue;
      out.taps[std::size_t(q)].push_back({k, at / e.stride});
      out.lowest = std::min(out.lowest, at / e.stride);
      out.highest = std::max(out.highest, at / e.stride);
    }
  return out;
}

bool DepthwiseGeometry::supports(const ConvSpec& s) {
  const bool native = s.dtype == DType::f32 || (s.dtype == DType::bf16 && onednn::has_bf16());
  return native && is_depthwise(s) && FloatMatmul::available();
}

bool DepthwiseGeometry::is_faster(const ConvSpec& s, ConvPass pass) {
  const auto above = [](const auto& extents, std::int64_t most) { return *std::ranges::max_element(extents) > most; };
  if (!supports(s)) return false;
  if (pass == ConvPass::forward && s.window.rank < 3 && onednn::prefers_float_matmul()) return false;
  const bool large = s.src.count() >= 256 * s.src[0] * s.src[-1];
  if (pass == ConvPass::weights && s.dtype == DType::bf16 && large && onednn::has_amx()) return true;
  return s.window.rank == 3 || above(s.window.kernel, 3) || above(s.window.dilation, 1);
}

DepthwiseGeometry::DepthwiseGeometry(const ConvSpec& s, ConvPart::Of of) {
  const ConvAxes axes(s);
  const bool data = of == ConvPart::Of::data;
  from_ = data ? axes.dst : axes.src;
  to_ = data ? axes.src : axes.dst;
  kernel_ = axes.kernel;
  for (std::size_t a = 0; a < 3; ++a) {
    const DepthwiseAxis::Extent extent{axes.kernel[a], axes.stride[a], axes.pad[a], axes.dilation[a]};
    axes_[a] = data ? DepthwiseAxis::data(extent) : DepthwiseAxis::forward(extent);
  }
  find_runs();
  divide();
}

void DepthwiseGeometry::find_runs() {
  const DepthwiseAxis& x = axes_[2];
  for (const auto& taps : x.taps) {
    const auto apart = [](const auto& a, const auto& b) { return b.shift != a.shift + 1; };
    const bool dense = std::adjacent_find(taps.begin(), taps.end(), apart) == taps.end();
    const auto count = std::int64_t(taps.size());
    const std::int64_t length = dense && count > 0 ? depthwise::run_length(count, x.step) : 1;
    RowClass out{{}, depthwise::kernels_for(length, x.step)};
    for (std::int64_t t = 0; t < count; ++t) {
      if (t % length == 0) out.runs.push_back({taps[std::size_t(t)].shift - x.lowest, std::int64_t(row_taps_.size())});
      row_taps_.push_back(taps[std::size_t(t)].number);
    }
    row_classes_.push_back(std::move(out));
  }
}

std::int64_t DepthwiseGeometry::most_taps(int a) const {
  std::size_t most = 1;
  for (const auto& taps : axis(a).taps) most = std::max(most, taps.size());
  return std::int64_t(most);
}

std::int64_t DepthwiseGeometry::most_runs() const {
  std::size_t most = 1;
  for (const RowClass& c : row_classes_) most = std::max(most, c.runs.size());
  return most_taps(0) * most_taps(1) * std::int64_t(most);
}

// As many channels as may be copied, then as wide a part of a row.
void DepthwiseGeometry::divide() {
  block_width_ = to_[3];
  const auto bytes = [&](std::int64_t channels) {
    return depths() * rows() * width() * channels * std::int64_t(sizeof(float));
  };
  panels_of_block_ = std::clamp<std::int64_t>(most_copied / bytes(lanes), 1, panels());
  channel_blocks_ = ceil_div(panels(), panels_of_block_);
  panels_of_block_ = ceil_div(panels(), channel_blocks_);
  while (block_width_ > least_width && bytes(panels_of_block_ * lanes) > most_copied) {
    const std::int64_t half = ceil_div(ceil_div(block_width_, 2), axes_[2].classes) * axes_[2].classes;
    if (half >= block_width_) break;  // a wide stride
    block_width_ = half;
  }

  block_rows_ = to_[2];
  const std::int64_t wanted = ceil_div(tasks_of_thread * thread_count(), tasks());
  block_rows_ = std::min(to_[2], ceil_div(ceil_div(to_[2], wanted), band) * band);
}

DepthwiseGeometry::Task DepthwiseGeometry::task(std::int64_t number) const {
  Task t{};
  t.x = number % blocks_of_row() * block_width_;
  number /= blocks_of_row();
  t.y = number % blocks_of_plane() * block_rows_;
  number /= blocks_of_plane();
  t.z = number % to_[1];
  number /= to_[1];
  t.image = number % to_[0];
  t.first_channel = number / to_[0] * panels_of_block_ * lanes;
  t.rows = std::min(block_rows_, to_[2] - t.y);
  t.width = std::min(block_width_, to_[3] - t.x);
  t.channels = std::min(panels_of_block_ * lanes, to_[4] - t.first_channel);
  return t;
}

}  // namespace millrace::cpu
