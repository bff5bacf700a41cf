// One operation of a backend with all its memory, for comparison with a reference in double.
//
// The set_* functions round values to the dtype of the tensor and return the rounded values, so that the reference
// computes from the same numbers. Results and the workspace are filled with NaNs before each call. That reveals results
// that an operation does not write, and workspace that it reads before it writes. All tensors are in memory of the
// device; get() and put() copy them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "millrace/ops/backend.hpp"
#include "support/device_values.hpp"

namespace millrace::test {

// The backend that the cases run on. It is chosen when the test is linked, with cpu_backend.cpp,
// host/kernels_backend.cpp, cuda_backend.cpp, ...
Backend& backend();

// set_* functions set an input; want_* functions reserve a result.
class OpHarness {
 public:
  explicit OpHarness(const Spec& spec) : OpHarness(backend().make(spec)) {}
  explicit OpHarness(std::unique_ptr<Op> op) : op_(std::move(op)) {
    const MemoryRequirements needs = op_->memory_requirements();
    workspace_ = bytes(needs.workspace);
    saved_ = bytes(needs.saved);
    packed_weights_ = bytes(needs.packed_weights);
    args.workspace = workspace_.data();
    args.saved = saved_.data();
    args.packed_weights = packed_weights_.data();
    args.state = state_.data();
  }
  OpHarness(const OpHarness&) = delete;
  OpHarness& operator=(const OpHarness&) = delete;

  Values set_src(int i, const Shape& shape, DType dtype, const Values& v) { return set(args.src[i], shape, dtype, v); }
  Tensor set_src(const Shape& shape, DType dtype, const Values& v) {  // a tensor that is not in args
    Tensor t;
    set(t, shape, dtype, v);
    return t;
  }
  void want_sums(Tensor& t, std::int64_t channels) { reserve(t, {2, channels}, DType::f32); }
  Values set_weight(int i, const Shape& shape, DType dtype, const Values& v) {
    return set(args.weight[i], shape, dtype, v);
  }
  Values set_diff_dst(const Shape& shape, DType dtype, const Values& v) { return set(args.diff_dst, shape, dtype, v); }
  void want_dst(const Shape& shape, DType dtype) { reserve(args.dst, shape, dtype); }
  void want_diff_src(int i, const Shape& shape, DType dtype) { reserve(args.diff_src[i], shape, dtype); }
  // With GradMode::add, the gradient is added to `initial`, which is returned rounded to float32. With write, it
  // overwrites NaNs, and the function returns zeros.
  Values want_diff_weight(int i, const Shape& shape, GradMode mode, const Values& initial = {}) {
    args.mode[i] = mode;
    if (mode == GradMode::add) return set(args.diff_weight[i], shape, DType::f32, initial);
    reserve(args.diff_weight[i], shape, DType::f32);
    return Values(static_cast<std::size_t>(shape.count()), 0.0);
  }
  Values want_stats(const Shape& shape, GradMode mode, const Values& initial = {}) {
    args.stats_mode = mode;
    if (mode == GradMode::add) return set(args.stats, shape, DType::f32, initial);
    reserve(args.stats, shape, DType::f32);
    return Values(static_cast<std::size_t>(shape.count()), 0.0);
  }

  void repack() {
    run([&] { op_->repack(args); });
  }
  void forward() {
    run([&] { op_->forward(args); });
  }
  void backward() {
    run([&] { op_->backward(args); });
  }
  Op& op() { return *op_; }

  OpArgs args;

 private:
  DeviceVector<StepState> state_{std::vector<StepState>(1)};

 public:
  StepState& state = state_[0];

 private:
  static void fill(const Buffer& buffer) {
    const std::vector<char> nans(buffer.bytes(), char(0xff));
    copy_to_device(buffer.data(), nans.data(), nans.size());
  }
  static Buffer bytes(std::size_t count) {
    Buffer buffer(device(), MemoryKind::device, count);
    fill(buffer);
    return buffer;
  }
  template <class Work>
  void run(const Work& work) {
    fill(workspace_);
    state_.to_device();
    work();
    device().synchronize();
    state_.to_host();
  }
  void reserve(Tensor& t, const Shape& shape, DType dtype) {
    t.shape = shape;
    t.dtype = dtype;
    buffers_.push_back(bytes(t.bytes()));
    t.data = buffers_.back().data();
  }
  Values set(Tensor& t, const Shape& shape, DType dtype, const Values& v) {
    reserve(t, shape, dtype);
    put(t, v);
    return get(t);
  }

  std::unique_ptr<Op> op_;
  Buffer workspace_, saved_, packed_weights_;
  std::vector<Buffer> buffers_;
};

// The allowed error for each dtype, relative to the largest magnitude of the expected values.
struct Tolerance {
  double f32, bf16, f16;
  double of(DType dtype) const { return dtype == DType::bf16 ? bf16 : dtype == DType::f16 ? f16 : f32; }
};

inline void expect_close(const Values& actual, const Values& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = 0, worst = -1;
  std::size_t at = 0;
  for (const double e : expected) scale = std::max(scale, std::abs(e));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    if (!(error <= worst)) {  // a NaN counts as the worst error
      worst = error;
      at = i;
    }
    if (std::isnan(worst)) break;
  }
  if (expected.empty()) return;
  EXPECT_LE(worst, tolerance * std::max(scale, std::numeric_limits<double>::min()))
      << what << ": element " << at << " of " << expected.size() << " is " << actual[at] << ", expected "
      << expected[at] << " (largest expected magnitude " << scale << ")";
}

// Compares the gradient of a reference with central differences of sum(f(x) * diff_dst), for up to 40 evenly spaced
// elements.
inline void expect_gradient(const std::function<Values(const Values&)>& f, Values x, const Values& diff_dst,
                            const Values& gradient, const std::string& what, double step = 1e-5,
                            double tolerance = 1e-6) {
  ASSERT_EQ(x.size(), gradient.size()) << what;
  const auto dot = [&](const Values& dst) {
    double sum = 0;
    for (std::size_t i = 0; i < dst.size(); ++i) sum += dst[i] * diff_dst[i];
    return sum;
  };
  double scale = 1e-300;
  for (const double g : gradient) scale = std::max(scale, std::abs(g));
  const std::size_t stride = std::max<std::size_t>(1, x.size() / 40);
  for (std::size_t i = 0; i < x.size(); i += stride) {
    const double kept = x[i];
    x[i] = kept + step;
    const double up = dot(f(x));
    x[i] = kept - step;
    const double down = dot(f(x));
    x[i] = kept;
    EXPECT_NEAR((up - down) / (2 * step), gradient[i], tolerance * scale) << what << " element " << i;
  }
}

}  // namespace millrace::test
