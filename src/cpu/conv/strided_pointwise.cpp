// A strided 1x1 convolution, computed as a dense one over the pixels that it reads. This avoids a bug in oneDNN 2.6:
// its kernel (jit_1x1:avx2) writes beyond its scratchpad if the number of channels is not a multiple of the vector
// length. Results then change from call to call, and the heap is corrupted.
#include <cstring>

#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace::cpu {
namespace {

ConvSpec dense(const ConvSpec& s) {
  ConvSpec d = s;
  const Shape dst = s.dst();
  for (int a = 1; a + 1 < s.src.rank; ++a) d.src[a] = dst[a];
  d.window.stride = {1, 1, 1};
  return d;
}

class StridedPointwise : public Op {
 public:
  explicit StridedPointwise(const ConvSpec& s)
      : spec_(s), dense_(dense(s)), inner_(make_conv(dense_)), pixel_bytes_(std::size_t(s.src[-1]) * size_of(s.dtype)) {
    needs_ = inner_->memory_requirements();
    gathered_at_ = align64(needs_.workspace);
    needs_.workspace = gathered_at_ + align64(std::size_t(dense_.src.count()) * size_of(s.dtype));
  }

  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override { return "gathered pixels, " + inner_->implementation(); }
  void repack(const OpArgs& args) override { inner_->repack(args); }

  void forward(const OpArgs& args) override {
    OpArgs inner = args;
    inner.src[0] = gather(args);
    inner_->forward(inner);
  }

  void backward(const OpArgs& args) override {
    OpArgs inner = args;
    inner.diff_src[0] = {};
    if (args.diff_weight[0] || args.diff_weight[1]) {
      inner.src[0] = gather(args);
      inner_->backward(inner);
    }
    if (!args.diff_src[0]) return;
    inner.diff_weight = {};
    inner.src[0] = {};
    inner.diff_src[0] = at_workspace(args);
    inner_->backward(inner);
    std::memset(args.diff_src[0].data, 0, args.diff_src[0].bytes());
    walk([&](std::size_t dense, std::size_t strided) {
      std::memcpy(args.diff_src[0].as<char>() + strided, inner.diff_src[0].as<char>() + dense, pixel_bytes_);
    });
  }

 private:
  Tensor at_workspace(const OpArgs& args) const {
    return {static_cast<char*>(args.workspace) + gathered_at_, spec_.dtype, dense_.src};
  }

  Tensor gather(const OpArgs& args) const {
    const Tensor out = at_workspace(args);
    walk([&](std::size_t dense, std::size_t strided) {
      std::memcpy(out.as<char>() + dense, args.src[0].as<char>() + strided, pixel_bytes_);
    });
    return out;
  }

  // Calls f(offset in the dense tensor, offset in the strided tensor) for each pixel that is read. Offsets are in
  // bytes.
  template <class F>
  void walk(F f) const {
    std::array<std::int64_t, 3> from{1, 1, 1}, to{1, 1, 1}, stride{1, 1, 1};
    const int rank = spec_.window.rank;
    for (int a = 0; a < rank; ++a) {
      from[std::size_t(3 - rank + a)] = spec_.src[1 + a];
      to[std::size_t(3 - rank + a)] = dense_.src[1 + a];
      stride[std::size_t(3 - rank + a)] = spec_.window.stride[std::size_t(a)];
    }
    std::size_t dense = 0;
    for (std::int64_t n = 0; n < spec_.src[0]; ++n)
      for (std::int64_t z = 0; z < to[0]; ++z)
        for (std::int64_t y = 0; y < to[1]; ++y)
          for (std::int64_t x = 0; x < to[2]; ++x, dense += pixel_bytes_)
            f(dense, std::size_t(((n * from[0] + z * stride[0]) * from[1] + y * stride[1]) * from[2] + x * stride[2]) *
                         pixel_bytes_);
  }

  ConvSpec spec_, dense_;
  std::unique_ptr<Op> inner_;
  std::size_t pixel_bytes_, gathered_at_ = 0;
  MemoryRequirements needs_;
};

}  // namespace

bool wants_strided_pointwise(const ConvSpec& s) {
  bool pointwise = s.groups == 1, strided = false;
  for (int a = 0; a < s.window.rank; ++a) {
    pointwise = pointwise && s.window.kernel[std::size_t(a)] == 1 && s.window.pad[std::size_t(a)] == 0;
    strided = strided || s.window.stride[std::size_t(a)] > 1;
  }
  return pointwise && strided && (s.src[-1] % 16 != 0 || s.out_channels % 16 != 0);
}

std::unique_ptr<Op> make_strided_pointwise(const ConvSpec& s) { return std::make_unique<StridedPointwise>(s); }

}  // namespace millrace::cpu
