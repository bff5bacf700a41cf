#include <atomic>
#include <functional>
#include <thread>

#include "cpu/backend.hpp"
#include "cpu/common/parallel.hpp"
#include "millrace/base/error.hpp"
#include "millrace/compute/execution_context.hpp"
#include "support/expect_error.hpp"
#include "support/op_harness.hpp"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace millrace {
namespace device_test {

using test::device;

TEST(DeviceShape, CountsAndPrints) {
  const Shape s{2, 597, 43, 3};
  EXPECT_EQ(s.count(), 2 * 597 * 43 * 3);
  EXPECT_EQ(s.row_count(), 597 * 43 * 3);
  EXPECT_EQ(s.spatial_rank(), 2);
  EXPECT_EQ(s[-1], 3);
  EXPECT_EQ(s.str(), "2x597x43x3");
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ((Tensor{nullptr, DType::bf16, s}.bytes()), std::size_t(s.count()) * 2);
}

#ifdef __x86_64__
bool takes_denormals_for_zero() {
  const volatile float denormal = 1e-40f, small = 1e-30f;
  return denormal * 1e10f == 0.0f && small * 1e-10f == 0.0f;  // as an operand and as a result
}
// Runs the body on a thread that keeps denormal numbers.
void with_denormals(const std::function<void()>& body) {
  std::thread([&] {
    _mm_setcsr(_mm_getcsr() & ~0x8040u);
    EXPECT_FALSE(takes_denormals_for_zero());
    body();
  }).join();
}

TEST(DeviceThreads, TakeDenormalNumbersForZero) {
  with_denormals([] {
    const auto made = make_cpu_device();
    EXPECT_TRUE(takes_denormals_for_zero());
  });
  const int threads = cpu::thread_count();
  cpu::set_thread_count(3);
  std::atomic<int> kept{0}, parts{0};
  with_denormals([&] {
    cpu::parallel_ranges(12, 1, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) {
        kept += !takes_denormals_for_zero();
        ++parts;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that other threads get parts
      }
    });
  });
  cpu::set_thread_count(threads);
  EXPECT_EQ(kept, 0);
  EXPECT_EQ(parts, 12);
}
#endif

TEST(DeviceMemory, IsZeroAndPageAligned) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, std::size_t{9} << 20}) {
    for (const auto kind : {MemoryKind::device, MemoryKind::pinned}) {
      const Buffer buffer(device(), kind, bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
      EXPECT_EQ(buffer.bytes(), bytes);
      for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.as<char>()[i], 0) << i;
    }
  }
}

TEST(DeviceMemory, IsDividedAmongTheRanksOfAHost) {
  const std::size_t one = make_cpu_device(1)->memory_bytes(), four = make_cpu_device(4)->memory_bytes();
  EXPECT_NEAR(double(four), double(one) / 4, double(one) / 8);
}

TEST(DeviceMemory, BuffersMoveAndRelease) {
  Buffer a(device(), MemoryKind::device, 100);
  void* const data = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
  a.reset();
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.bytes(), 0u);
  EXPECT_EQ(Buffer(device(), MemoryKind::device, 0).data(), nullptr);
}

TEST(DeviceMemory, AllocatingTooMuchIsAConfigurationError) {
  test::expect_error(Exit::config, "memory",
                     [&] { Buffer buffer(device(), MemoryKind::device, device().memory_bytes() + 4096); });
}

TEST(DeviceMemory, IsCopiedAndCleared) {
  Buffer on_device(device(), MemoryKind::device, 12), host(device(), MemoryKind::pinned, 12);
  const std::vector<int> values{1, 2, 3};
  device().copy_to_device(Stream::copy, on_device.data(), values.data(), 12);
  device().copy_to_host(Stream::compute, host.data(), on_device.data(), 12);
  device().synchronize();
  EXPECT_EQ(std::vector<int>(host.as<int>(), host.as<int>() + 3), values);
  device().fill_zero(Stream::compute, on_device.data(), 12);
  EXPECT_EQ(on_device.as<int>()[1], 0);
}

TEST(DeviceTimestamps, AreSecondsSinceTheFirst) {
  const auto timestamps = device().make_timestamps(2);
  timestamps->record(Stream::compute, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  timestamps->record(Stream::compute, 1);
  std::vector<double> seconds(2, -1);
  timestamps->read(seconds);
  EXPECT_EQ(seconds[0], 0);
  EXPECT_GE(seconds[1], 0.003);
}

TEST(DeviceCapturedStep, CallsTheFunctionInEachRun) {
  int runs = 0;
  const auto captured = device().capture("step", [&] { ++runs; });
  EXPECT_EQ(runs, 0);
  captured->run();
  captured->run();
  EXPECT_EQ(runs, 2);
}

TEST(DeviceDescription, NamesProcessorThreadsAndInstructions) {
  EXPECT_EQ(device().name(), "cpu");
  EXPECT_NE(device().describe().find("threads"), std::string::npos);
  EXPECT_NE(device().describe().find("oneDNN"), std::string::npos);
  EXPECT_GT(device().memory_bytes(), std::size_t{1} << 20);
}

TEST(DeviceExecutionContext, HasDeviceBackendAndCollective) {
  const auto world = solo_world();
  ExecutionOptions options;
  const ExecutionContext compute = make_cpu_context(*world, options);
  EXPECT_EQ(&compute.backend->device(), compute.device.get());
  EXPECT_NE(compute.collective, nullptr);
}

TEST(DeviceSpecs, HaveNamesFlopsAndShapes) {
  ConvSpec conv;
  conv.src = {2, 8, 8, 3};
  conv.out_channels = 4;
  conv.window.kernel = {3, 3, 1};
  conv.window.pad = {1, 1, 0};
  EXPECT_STREQ(name_of(Spec{conv}), "conv");
  EXPECT_EQ(flops_of(Spec{conv}), 2.0 * 2 * 8 * 8 * 4 * 27);
  EXPECT_EQ(conv.weight(), (Shape{4, 3, 3, 3}));
  PoolSpec pool;
  pool.src = {2, 9, 8, 3};
  pool.window.kernel = {3, 3, 1};
  pool.window.stride = {2, 2, 1};
  EXPECT_EQ(pool.dst(), (Shape{2, 4, 3, 3}));
  pool.kind = PoolSpec::Kind::global;
  EXPECT_EQ(pool.dst(), (Shape{2, 3}));
  EXPECT_EQ(flops_of(Spec{pool}), 0);
  EXPECT_EQ(activation_from("gelu"), Activation::gelu);
  EXPECT_EQ(activation_from("gelu_tanh"), Activation::gelu_tanh);
  EXPECT_THROW(activation_from("swish"), Error);
}

TEST(DeviceHalf, OpsReportWhenTheyAreEmulated) {
  EXPECT_EQ(test::backend().precision_note(DType::f32), "");
  EXPECT_NE(test::backend().precision_note(DType::f16).find("emulated"), std::string::npos);
  LinearSpec s;
  s.src = {4, 16};
  s.out_features = 8;
  s.dtype = DType::f16;
  EXPECT_NE(test::backend().make(s)->implementation().find("emulated"), std::string::npos);
  s.dtype = DType::bf16;
  const bool note = !test::backend().precision_note(DType::bf16).empty();
  EXPECT_EQ(test::backend().make(s)->implementation().find("emulated") != std::string::npos, note);
}

}  // namespace device_test
}  // namespace millrace
