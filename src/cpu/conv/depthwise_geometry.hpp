// How a depthwise convolution is cut into tasks, and what its kernels read: rows of the source, copied with their
// padding, so that 16 channels of a pixel lie side by side, and those of the next pixel behind them.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "cpu/common/conv_axes.hpp"
#include "cpu/common/conv_methods.hpp"
#include "cpu/common/conv_part.hpp"
#include "cpu/conv/depthwise_axis.hpp"
#include "cpu/conv/depthwise_kernels.hpp"
#include "millrace/base/align.hpp"

namespace millrace::cpu {

class DepthwiseGeometry {
 public:
  static constexpr std::int64_t band = 4;  // rows of outputs whose source is in the second-level cache at once

  // Whether each channel has a kernel of its own and the processor has AVX2. In bf16 it must also compute in bf16.
  static bool supports(const ConvSpec&);
  // Whether it is also faster than oneDNN, by the fixed rules. oneDNN reads images in place, which is faster for
  // kernels of up to 3 x 3, and forward with AVX2 for all. On processors with AMX its bf16 gradients of weights are
  // slower for images of at least 256 pixels (docs/benchmarks/2026-11-choice.md).
  static bool is_faster(const ConvSpec&, ConvPass);

  // data: reads diff_dst and computes diff_src, with a turned kernel.
  DepthwiseGeometry(const ConvSpec&, ConvPart::Of);

  struct Task {
    std::int64_t image, z, y, x, rows, width;  // of the output
    std::int64_t first_channel, channels;
  };
  std::int64_t tasks() const { return channel_blocks_ * tasks_of_channels(); }
  Task task(std::int64_t number) const;  // those of the same channels follow each other

  // Outputs of a row that read the same runs: those at x = q, q + classes, and so on.
  struct RowClass {
    struct Run {
      std::int64_t column, number;  // of the copied row; of the first tap in the order of row_taps()
    };
    std::vector<Run> runs;
    depthwise::Kernels kernels;
  };
  const std::vector<RowClass>& row_classes() const { return row_classes_; }
  // The taps of a row of the kernel, in the order in which weights are stored for the kernels.
  const std::vector<std::int64_t>& row_taps() const { return row_taps_; }

  const Shape& from() const { return from_; }
  const Shape& to() const { return to_; }
  const DepthwiseAxis& axis(int a) const { return axes_[std::size_t(a)]; }  // z, y, x
  std::int64_t kernel_rows() const { return kernel_[1]; }
  std::int64_t taps() const { return kernel_[0] * kernel_[1] * kernel_[2]; }
  std::int64_t panels() const { return ceil_div(to_[4], depthwise::lanes); }

  std::int64_t block_width() const { return block_width_; }  // of the widest task

  // Of the copied rows: pixels, rows of one depth, and depths.
  std::int64_t width() const { return axes_[2].extent(block_width_); }
  std::int64_t rows() const { return axes_[1].extent(band); }
  std::int64_t depths() const { return most_taps(0); }
  std::int64_t row_elements() const { return width() * panels_of_block_ * depthwise::lanes; }
  std::int64_t most_runs() const;  // of an output row

 private:
  void divide();
  void find_runs();
  std::int64_t most_taps(int axis) const;  // of its classes
  std::int64_t blocks_of_row() const { return ceil_div(to_[3], block_width_); }
  std::int64_t blocks_of_plane() const { return ceil_div(to_[2], block_rows_); }
  std::int64_t tasks_of_channels() const { return to_[0] * to_[1] * blocks_of_plane() * blocks_of_row(); }

  Shape from_, to_;
  std::array<std::int64_t, 3> kernel_;
  std::array<DepthwiseAxis, 3> axes_;
  std::vector<RowClass> row_classes_;
  std::vector<std::int64_t> row_taps_;
  std::int64_t panels_of_block_, channel_blocks_, block_rows_, block_width_;
};

// Copies pixels that are `step` elements apart (float32 or bf16), from the element `at` on, to panels of 16 channels
// that are `panel` elements apart, and pixels side by side. Missing channels of the last panel become zeros.
void copy_pixels(float* to, std::int64_t panel, const Tensor& from, std::int64_t at, std::int64_t step,
                 std::int64_t pixels, std::int64_t channels);
// Rounds pixels of at most 16 channels to bf16 and stores them. Behind `from` there is memory for as many rounded
// numbers.
void store_pixels(const Tensor& to, std::int64_t at, std::int64_t step, float* from, std::int64_t pixels,
                  std::int64_t channels);

// The copied rows of a task, in memory of one thread.
class DepthwiseRows {
 public:
  static std::size_t bytes(const DepthwiseGeometry&);
  // from: float32 or bf16.
  DepthwiseRows(const DepthwiseGeometry&, const DepthwiseGeometry::Task&, const Tensor& from, void* memory);

  // Copies what the output rows [y, y + count) of the task read, at most `band` rows. y grows from call to call. The
  // rows of an earlier call are gone.
  void read(std::int64_t y, std::int64_t count);

  // Calls body(row, kernels, x) for each class of the outputs in row y, which read() covers, and for a panel of
  // channels. x: of its first output.
  template <class Body>
  void for_classes(std::int64_t y, std::int64_t panel, const Body& body) const;

 private:
  const float* copied(std::int64_t depth, std::int64_t y) const {
    return rows_ + (depth * geometry_.rows() + y % geometry_.rows()) * geometry_.row_elements();
  }
  void copy(float* to, std::int64_t z, std::int64_t y) const;
  void find_runs(std::int64_t y, std::size_t row_class, std::int64_t at);

  const DepthwiseGeometry& geometry_;
  const DepthwiseGeometry::Task& task_;
  const Tensor& from_;
  float* rows_;
  depthwise::Run* runs_;      // (band, classes, most_runs)
  std::int64_t* run_counts_;  // (band, classes)
  std::int64_t next_;         // the first row that was not copied yet
};

template <class Body>
void DepthwiseRows::for_classes(std::int64_t y, std::int64_t panel, const Body& body) const {
  const auto& classes = geometry_.row_classes();
  const std::int64_t count = std::int64_t(classes.size()), step = geometry_.axis(2).step;
  for (std::int64_t q = 0; q < std::min(count, task_.width); ++q) {
    const std::int64_t at = y % DepthwiseGeometry::band * count + q;
    body(depthwise::Row{runs_ + at * geometry_.most_runs(), run_counts_[at],
                        panel * geometry_.width() * depthwise::lanes, step, (task_.width - q + count - 1) / count,
                        std::min(depthwise::lanes, task_.channels - panel * depthwise::lanes)},
         classes[std::size_t(q)].kernels, task_.x + q);
  }
}

}  // namespace millrace::cpu
