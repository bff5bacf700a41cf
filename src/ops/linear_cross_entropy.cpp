#include "millrace/ops/linear_cross_entropy.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/align.hpp"

namespace millrace {
namespace {

constexpr std::size_t alignment = 256;  // what libraries require for their scratch memory

class LinearCrossEntropy : public Op {
 public:
  LinearCrossEntropy(const LinearCrossEntropySpec& spec, std::unique_ptr<Op> linear, std::unique_ptr<Op> loss)
      : spec_(spec), linear_(std::move(linear)), loss_(std::move(loss)), logits_shape_(spec.chunk_loss().src) {
    const std::size_t bytes = std::size_t(logits_shape_.count()) * size_of(spec_.loss.dtype);
    logits_bytes_ = (bytes + alignment - 1) / alignment * alignment;
  }

  MemoryRequirements memory_requirements() const override {
    const MemoryRequirements linear = linear_->memory_requirements(), loss = loss_->memory_requirements();
    MR_CHECK(linear.saved == 0 && loss.saved == 0);
    return {.workspace = buffers() * logits_bytes_ + std::max(linear.workspace, loss.workspace),
            .packed_weights = linear.packed_weights};
  }

  void forward(const OpArgs& args) override {
    for (std::int64_t chunk = 0; chunk < spec_.chunks(); ++chunk) {
      const OpArgs product = linear_args(args, chunk);
      linear_->forward(product);
      loss_->forward(loss_args(args, product, chunk));
      if (spec_.loss.mode == Mode::train) linear_->backward(product);
    }
  }
  void backward(const OpArgs&) override {}
  void repack(const OpArgs& args) override { linear_->repack(args); }
  std::string implementation() const override {
    return fmt::format("{} chunks of {}, {}", spec_.chunks(), linear_->implementation(), loss_->implementation());
  }

 private:
  std::size_t buffers() const { return spec_.loss.mode == Mode::train ? 2 : 1; }  // the logits, and their gradient

  // Part `chunk` of a tensor over all rows, with the given shape.
  static Tensor part(const Tensor& whole, const Shape& shape, std::int64_t chunk) {
    if (!whole) return {};
    const std::size_t bytes = std::size_t(shape.count()) * size_of(whole.dtype);
    return {static_cast<std::byte*>(whole.data) + std::size_t(chunk) * bytes, whole.dtype, shape};
  }

  OpArgs linear_args(const OpArgs& args, std::int64_t chunk) const {
    OpArgs out = args;
    auto* const scratch = static_cast<std::byte*>(args.workspace);
    const Shape src = spec_.chunk_linear().src, dst = spec_.chunk_linear().dst();
    out.src = {part(args.src[0], src, chunk)};
    out.diff_src = {part(args.diff_src[0], src, chunk)};
    out.dst = {scratch, spec_.loss.dtype, dst};
    if (buffers() > 1) out.diff_dst = {scratch + logits_bytes_, spec_.loss.dtype, dst};
    out.workspace = scratch + buffers() * logits_bytes_;
    if (chunk > 0) out.mode.fill(GradMode::add);
    return out;
  }

  OpArgs loss_args(const OpArgs& args, const OpArgs& product, std::int64_t chunk) const {
    OpArgs out;
    Shape labels = logits_shape_;
    --labels.rank;
    out.src[0] = {product.dst.data, product.dst.dtype, logits_shape_};
    out.src[1] = part(args.src[1], labels, chunk);
    if (product.diff_dst) out.diff_src[0] = {product.diff_dst.data, product.diff_dst.dtype, logits_shape_};
    out.workspace = product.workspace;
    out.metrics = args.metrics;
    out.state = args.state;
    return out;
  }

  LinearCrossEntropySpec spec_;
  std::unique_ptr<Op> linear_, loss_;
  Shape logits_shape_;  // of a chunk
  std::size_t logits_bytes_ = 0;
};

}  // namespace

LinearSpec LinearCrossEntropySpec::chunk_linear() const {
  LinearSpec out = linear;
  out.src[0] = linear.src[0] / chunks();
  return out;
}

CrossEntropySpec LinearCrossEntropySpec::chunk_loss() const {
  CrossEntropySpec out = loss;
  out.src[0] = chunk_rows;
  return out;
}

std::unique_ptr<Op> make_linear_cross_entropy(const LinearCrossEntropySpec& spec, std::unique_ptr<Op> chunk_linear,
                                              std::unique_ptr<Op> chunk_loss) {
  return std::make_unique<LinearCrossEntropy>(spec, std::move(chunk_linear), std::move(chunk_loss));
}

}  // namespace millrace
