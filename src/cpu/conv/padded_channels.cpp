// padded_channels, with separate copies. This is not faster on a CPU; tests compare the kernels of other backends with
// it.
#include <algorithm>
#include <cstring>

#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace::cpu {
namespace {

// Copies rows to a different width, in bytes. Longer rows are truncated, shorter rows are filled up with zeros.
void copy_rows(void* to, std::size_t to_width, const void* from, std::size_t from_width, std::int64_t rows) {
  const std::size_t both = std::min(to_width, from_width);
  parallel_ranges(rows, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::byte* row = static_cast<std::byte*>(to) + std::size_t(r) * to_width;
      std::memcpy(row, static_cast<const std::byte*>(from) + std::size_t(r) * from_width, both);
      std::memset(row + both, 0, to_width - both);
    }
  });
}

// A copy of a tensor without its padded channels. It is in the workspace, behind the workspace of the wrapped op.
class UnpaddedTensor {
 public:
  UnpaddedTensor(const Shape& wide, std::int64_t padded_channels, DType dtype, std::size_t own_workspace)
      : rows_(wide.count() / wide[-1]),
        wide_bytes_(std::size_t(wide[-1]) * size_of(dtype)),
        narrow_bytes_(std::size_t(wide[-1] - padded_channels) * size_of(dtype)),
        at_((own_workspace + 63) / 64 * 64) {}
  std::size_t workspace() const { return at_ + std::size_t(rows_) * narrow_bytes_; }
  void* in(const OpArgs& args) const { return static_cast<std::byte*>(args.workspace) + at_; }
  void narrow(const OpArgs& args, const void* wide) const {
    copy_rows(in(args), narrow_bytes_, wide, wide_bytes_, rows_);
  }
  void widen(const OpArgs& args, void* wide) const { copy_rows(wide, wide_bytes_, in(args), narrow_bytes_, rows_); }

 private:
  std::int64_t rows_;
  std::size_t wide_bytes_, narrow_bytes_, at_;
};

class ConvWithoutPaddingChannels : public Op {
 public:
  ConvWithoutPaddingChannels(const ConvSpec& spec, std::unique_ptr<Op> conv)
      : conv_(std::move(conv)),
        narrow_(spec.src, spec.padded_channels, spec.dtype, conv_->memory_requirements().workspace) {}
  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs = conv_->memory_requirements();
    needs.workspace = narrow_.workspace();
    return needs;
  }
  std::string implementation() const override { return conv_->implementation() + ", without padding channels"; }
  WorkShare work_share() const override { return conv_->work_share(); }
  void repack(const OpArgs& args) override { conv_->repack(args); }
  void forward(const OpArgs& args) override { conv_->forward(of_narrow(args)); }
  void backward(const OpArgs& args) override { conv_->backward(of_narrow(args)); }

 private:
  OpArgs of_narrow(const OpArgs& args) const {
    narrow_.narrow(args, args.src[0].data);
    OpArgs of = args;
    of.src[0].data = narrow_.in(args);
    return of;
  }
  std::unique_ptr<Op> conv_;
  UnpaddedTensor narrow_;
};

class InputWithPaddingChannels : public Op {
 public:
  InputWithPaddingChannels(const InputSpec& spec, std::unique_ptr<Op> input)
      : input_(std::move(input)),
        narrow_(spec.dst(), spec.padded_channels, spec.dtype, input_->memory_requirements().workspace) {}
  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs = input_->memory_requirements();
    needs.workspace = narrow_.workspace();
    return needs;
  }
  std::string implementation() const override { return input_->implementation() + ", with padding channels"; }
  void forward(const OpArgs& args) override {
    OpArgs of = args;
    of.dst.data = narrow_.in(args);
    input_->forward(of);
    narrow_.widen(args, args.dst.data);
  }
  void backward(const OpArgs&) override {}

 private:
  std::unique_ptr<Op> input_;
  UnpaddedTensor narrow_;
};

}  // namespace

std::unique_ptr<Op> make_conv_without_padding_channels(const ConvSpec& spec, std::unique_ptr<Op> conv) {
  return std::make_unique<ConvWithoutPaddingChannels>(spec, std::move(conv));
}
std::unique_ptr<Op> make_input_with_padding_channels(const InputSpec& spec, std::unique_ptr<Op> input) {
  return std::make_unique<InputWithPaddingChannels>(spec, std::move(input));
}

}  // namespace millrace::cpu
