#include "millrace/train/session/peaks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

// One operation with its own memory. Tensors are filled with random values, because operations on zeros are faster.
class Trial {
 public:
  Trial(ExecutionContext& compute, const Spec& spec, const Shape& src, int src_count, const Shape& dst,
        const Shape& weight, DType dtype)
      : compute_(compute), op_(compute.backend->make(spec)) {
    const MemoryRequirements needs = op_->memory_requirements();
    args_.workspace = buffer(needs.workspace);
    args_.saved = buffer(needs.saved);
    args_.packed_weights = buffer(needs.packed_weights);
    args_.state = static_cast<StepState*>(buffer(sizeof(StepState)));
    for (int i = 0; i < src_count; ++i) args_.src[std::size_t(i)] = tensor(src, dtype);
    args_.dst = tensor(dst, dtype);
    if (weight.rank) args_.weight[0] = tensor(weight, dtype);
    op_->repack(args_);
    compute_.device->synchronize();
  }

  double work_share() const { return op_->work_share().forward; }
  // The shortest time of one call in seconds. Measures for about so many seconds, but at least `least_rounds`, of which
  // the first does not count. A round takes about round_seconds, so that the synchronization costs little.
  double seconds(double duration = 0.2, int least_rounds = 4, double round_seconds = 0.01) {
    const double end = steady_seconds() + duration;
    int calls = 1;
    double best = 1e30;
    for (int rounds = 0; steady_seconds() < end || rounds < least_rounds; ++rounds) {
      const double began = steady_seconds();
      for (int i = 0; i < calls; ++i) op_->forward(args_);
      compute_.device->synchronize();
      const double one = (steady_seconds() - began) / calls;
      if (rounds > 0) best = std::min(best, one);
      calls = std::clamp(int(round_seconds / one), 1, 1000);
    }
    return best;
  }

 private:
  static constexpr std::int64_t random_values = 1 << 16;  // repeated in larger tensors

  void* buffer(std::size_t bytes) {
    buffers_.emplace_back(*compute_.device, MemoryKind::device, std::max<std::size_t>(bytes, 64));
    return buffers_.back().data();
  }
  Tensor tensor(const Shape& shape, DType dtype) {
    const Tensor t{buffer(std::size_t(shape.count()) * size_of(dtype)), dtype, shape};
    std::vector<float> values(std::size_t(std::min<std::int64_t>(shape.count(), random_values)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = uniform01(philox(rng_key(1, RngPurpose::synthetic), 0, i / 4).v[i % 4]) - 0.5f;
    const Buffer random(*compute_.device, MemoryKind::device, values.size() * sizeof(float));
    compute_.device->copy_to_device(Stream::compute, random.data(), values.data(), values.size() * sizeof(float));
    for (std::int64_t at = 0; at < shape.count(); at += std::int64_t(values.size()))
      compute_.backend->convert(t.as<char>() + std::size_t(at) * size_of(dtype), dtype, random.data(), DType::f32,
                                std::min<std::int64_t>(std::int64_t(values.size()), shape.count() - at));
    compute_.device->synchronize();
    return t;
  }

  ExecutionContext& compute_;
  std::unique_ptr<Op> op_;
  std::vector<Buffer> buffers_;
  OpArgs args_;
};

LinearSpec product(DType dtype, std::int64_t n) {
  LinearSpec s;
  s.src = {n, n};
  s.out_features = n;
  s.bias = false;
  s.dtype = dtype;
  return s;
}

ConvSpec convolution(DType dtype, std::int64_t rows, std::int64_t side, std::int64_t channels) {
  ConvSpec s;
  s.src = {rows, side, side, channels};
  s.out_channels = channels;
  s.dtype = dtype;
  s.window.kernel = {3, 3, 1};
  s.window.pad = {1, 1, 0};
  return s;
}

// Of a matrix product or a convolution.
template <class S>
double flops_rate(ExecutionContext& compute, const S& s) {
  Trial trial(compute, s, s.src, 1, s.dst(), s.weight(), s.dtype);
  return trial.work_share() * s.flops() / trial.seconds();
}

AddSpec addition(DType dtype, std::int64_t count) {
  AddSpec s;
  s.src = {count, 1};
  s.dtype = dtype;
  return s;
}

double memory(ExecutionContext& compute, DType dtype, std::int64_t count) {
  const AddSpec s = addition(dtype, count);
  return forward_cost(s).bytes / Trial(compute, s, s.src, 2, s.src, {}, dtype).seconds(0.15);
}

double copies(Device& device, std::size_t bytes) {
  const Buffer host(device, MemoryKind::pinned, bytes), there(device, MemoryKind::device, bytes);
  double best = 1e30;
  for (int round = 0; round < 6; ++round) {
    const double began = steady_seconds();
    device.copy_to_device(Stream::copy, there.data(), host.data(), bytes);
    device.synchronize();
    best = std::min(best, steady_seconds() - began);
  }
  return double(bytes) / best;
}

// Launches slow small tensors down.
void finish_memory_rates(Peaks& peaks) {
  for (std::size_t i = peaks.memory_rates.size() - 1; i-- > 0;)
    peaks.memory_rates[i].bytes_per_second =
        std::max(peaks.memory_rates[i].bytes_per_second, peaks.memory_rates[i + 1].bytes_per_second);
  peaks.memory_bytes = peaks.memory_rates.back().bytes_per_second;
}

// measure(size) with the largest of size, size / 2, ... >= least for which the device has memory. Other ranks or
// programs may have taken most of it.
template <class Measure>
double with_memory(std::int64_t size, std::int64_t least, const Measure& measure) {
  for (;; size /= 2) try {
      return measure(size);
    } catch (const Error& e) {
      if (e.code() != Exit::config || size / 2 < least) throw;
    }
}

// The rate of one size in FLOP/s. All ranks must call it for the same size, because making an operation may be
// collective (plan_selector.hpp). 0: this rank has too little memory.
template <class S>
double rate_of(ExecutionContext& compute, const S& s, double duration) {
  try {
    Trial trial(compute, s, s.src, 1, s.dst(), s.weight(), s.dtype);
    return trial.work_share() * s.flops() / trial.seconds(duration, 2, 2e-3);
  } catch (const std::exception&) {
    return 0;
  }
}

// The rate of spec(size) for the smallest size that takes a millisecond on the slowest rank, or the largest one that
// does not take too much of the time. Returns 0 on all ranks if one cannot measure.
template <class MakeSpec>
double growing_flops(ExecutionContext& compute, double duration, const std::vector<std::int64_t>& sizes,
                     const LeastOfRanks& least, const MakeSpec& spec) {
  constexpr double long_enough = 1e-3;
  const double first = rate_of(compute, spec(sizes.front()), 0), slowest = least(first);
  if (slowest <= 0) return 0;
  std::size_t chosen = 0;
  const auto seconds = [&](std::size_t i) { return spec(sizes[i]).flops() / slowest; };
  while (chosen + 1 < sizes.size() && seconds(chosen) < long_enough && 4 * seconds(chosen + 1) < duration) ++chosen;
  const double rate = rate_of(compute, spec(sizes[chosen]), duration / 2);
  return least(rate) > 0 ? std::max(first, rate) : 0;
}

}  // namespace

double Peaks::memory_rate(double bytes) const {
  double rate = memory_rates.empty() ? memory_bytes : memory_rates.front().bytes_per_second;
  for (const MemoryRate& measured : memory_rates)
    if (measured.bytes <= bytes) rate = measured.bytes_per_second;
  return rate;
}

double Peaks::seconds(const Cost& cost) const {
  return std::max(cost.flops / best_flops(), cost.bytes / memory_rate(cost.bytes));
}

void Peaks::include(const Cost& cost, double seconds) {
  if (seconds <= 0) return;
  if (cost.flops > seconds * best_flops()) convolution_flops = cost.flops / seconds;
  const double rate = cost.bytes / seconds;
  if (rate <= memory_rate(cost.bytes)) return;
  const std::size_t count = memory_rates.size();
  for (std::size_t i = 0; i < count; ++i)  // smaller tensors are at least as fast
    if (i == 0 || memory_rates[i].bytes <= cost.bytes)
      memory_rates[i].bytes_per_second = std::max(memory_rates[i].bytes_per_second, rate);
  memory_bytes = count > 0 ? memory_rates.back().bytes_per_second : rate;
}

void Peaks::scale(double factor) {
  product_flops *= factor;
  convolution_flops *= factor;
  memory_bytes *= factor;
  for (MemoryRate& measured : memory_rates) measured.bytes_per_second *= factor;
}

std::string Peaks::str() const {
  std::string out =
      fmt::format("peaks measured here: matrix product {:.1f} GFLOP/s, convolution {:.1f} GFLOP/s, memory {:.1f} GB/s",
                  product_flops * 1e-9, convolution_flops * 1e-9, memory_bytes * 1e-9);
  if (memory_rates.size() > 1) {
    out += fmt::format(" (up to {:.1f} GB/s from caches)", memory_rates.front().bytes_per_second * 1e-9);
  }
  if (copy_bytes > 0) {
    out += fmt::format(", copies to the device {:.1f} GB/s", copy_bytes * 1e-9);
  }
  return out + "\n";
}

Peaks measure_peaks(ExecutionContext& compute, DType dtype) {
  // Sizes that keep a GPU busy for a millisecond would take minutes on a CPU.
  const bool large = !compute.device->shares_host_memory();
  Peaks peaks;
  peaks.product_flops = with_memory(large ? 8192 : 1024, large ? 2048 : 1024,
                                    [&](std::int64_t n) { return flops_rate(compute, product(dtype, n)); });
  for (const std::int64_t channels : {64, 128, 256}) {
    const std::int64_t side = 64 * 32 / channels;
    const double flops = with_memory(large ? 256 : 8, 8, [&](std::int64_t rows) {
      return flops_rate(compute, convolution(dtype, rows, side, channels));
    });
    peaks.convolution_flops = std::max(peaks.convolution_flops, flops);
  }
  // Of one of the three tensors: a quarter of a megabyte, 2, 8 and 64 on a CPU.
  for (const std::int64_t kib : large ? std::vector<std::int64_t>{4 << 10, 16 << 10, 512 << 10}
                                      : std::vector<std::int64_t>{64, 512, 4 << 10, 64 << 10}) {
    std::int64_t count = 0;
    const double rate = with_memory(kib, std::min<std::int64_t>(kib, 16 << 10), [&](std::int64_t size) {
      count = (size << 10) / std::int64_t(size_of(dtype));
      return memory(compute, dtype, count);
    });
    peaks.memory_rates.push_back({3.0 * double(count) * double(size_of(dtype)), rate});
  }
  finish_memory_rates(peaks);
  if (large)
    peaks.copy_bytes =
        with_memory(256, 8, [&](std::int64_t mib) { return copies(*compute.device, std::size_t(mib) << 20); });
  return peaks;
}

Peaks measure_peaks_briefly(ExecutionContext& compute, DType dtype, bool convolutions, const LeastOfRanks& least,
                            double seconds) {
  const double end = steady_seconds() + seconds;
  Peaks peaks;
  peaks.product_flops = growing_flops(compute, 0.25 * seconds, {256, 512, 768, 1024, 2048, 4096, 8192}, least,
                                      [&](std::int64_t n) { return product(dtype, n); });
  if (peaks.product_flops <= 0) return {};
  if (convolutions) {
    peaks.convolution_flops = growing_flops(compute, 0.25 * seconds, {1, 2, 4, 16, 64, 256}, least,
                                            [&](std::int64_t rows) { return convolution(dtype, rows, 32, 128); });
    if (peaks.convolution_flops <= 0) return {};
  }
  // The largest tensors first, because their rate bounds the others.
  const bool large = !compute.device->shares_host_memory();
  for (const std::int64_t kib :
       large ? std::vector<std::int64_t>{64 << 10, 4 << 10} : std::vector<std::int64_t>{16 << 10, 2 << 10, 512, 64}) {
    const AddSpec s = addition(dtype, (kib << 10) / std::int64_t(size_of(dtype)));
    Trial trial(compute, s, s.src, 2, s.src, {}, dtype);
    const double one = trial.seconds(std::min(0.05 * seconds, end - steady_seconds()), 3, 1e-3);
    const double bytes = forward_cost(s).bytes;
    peaks.memory_rates.insert(peaks.memory_rates.begin(), {bytes, bytes / one});
  }
  finish_memory_rates(peaks);
  return peaks;
}

}  // namespace millrace
