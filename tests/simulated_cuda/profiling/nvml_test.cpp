// What src/cuda reads from NVML, and the rules of the simulated NVML.
#include "cuda/runtime/nvml.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "simulated_cuda/profiling/nvml.hpp"
#include "simulated_cuda/simulator.hpp"

extern "C" {
struct nvmlDevice_st;
int nvmlInit_v2();
int nvmlShutdown();
int nvmlDeviceGetHandleByPciBusId_v2(const char*, nvmlDevice_st**);
int nvmlDeviceGetTemperature(nvmlDevice_st*, int, unsigned*);
}

namespace millrace::cuda {
namespace nvml_test {

struct SimulatedNvml : testing::Test {
  SimulatedNvml() { simulated::gpu_health() = {}; }
  ~SimulatedNvml() override {
    simulated::gpu_health() = {};
    EXPECT_EQ(simulated::nvml_users(), 0);
  }
};

TEST_F(SimulatedNvml, ReadsWhatTheGpuReportsAndLeavesTheRestUnknown) {
  auto& gpu = simulated::gpu_health();
  gpu.clock_mhz = 1410;
  gpu.pcie_lanes = 8;
  gpu.nvlinks = 4;
  gpu.nvlinks_down = 1;
  gpu.throttle_reasons = 0x4 | 0x40;
  gpu.reports_energy = false;
  for (const bool old_driver : {false, true}) {
    gpu.old_driver = old_driver;
    std::string why_not;
    auto nvml = Nvml::open("0000:01:00.0", &why_not);
    ASSERT_TRUE(nvml) << why_not;
    EXPECT_EQ(simulated::nvml_users(), 1);
    DeviceHealth h;
    nvml->read(h);
    EXPECT_EQ(h.clock_mhz, 1410);
    EXPECT_EQ(h.top_clock_mhz, 1980);
    EXPECT_GE(h.watts, 100);
    EXPECT_EQ(h.limit_watts, 700);
    EXPECT_EQ(h.celsius, 40);
    EXPECT_EQ(h.joules, -1) << "this GPU does not report its energy";
    EXPECT_EQ(h.pcie_generation, 5);
    EXPECT_EQ(h.top_pcie_generation, 5);
    EXPECT_EQ(h.pcie_lanes, 8);
    EXPECT_EQ(h.top_pcie_lanes, 16);
    EXPECT_EQ(h.nvlinks, 3);
    EXPECT_DOUBLE_EQ(h.nvlink_rate, 3 * 26.562e9);
    EXPECT_EQ(h.throttle_reasons, (std::vector<std::string>{"power cap", "heat (hardware)"}));
  }
}

TEST_F(SimulatedNvml, EnergyFollowsTheWork) {
  const auto nvml = Nvml::open("0000:02:00.0", nullptr);
  ASSERT_TRUE(nvml);
  cudaSetDevice(0);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  DeviceHealth before, idle, busy;
  nvml->read(before);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  nvml->read(idle);
  simulated::enqueue(stream, "a kernel", [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
  cudaStreamSynchronize(stream);
  nvml->read(busy);
  EXPECT_GT(busy.joules - idle.joules, 100e-3 * 600);
  EXPECT_GE(idle.joules - before.joules, 100e-3 * 120 * 0.9);
  EXPECT_GT(busy.watts, idle.watts + 100);
  cudaStreamDestroy(stream);
}

TEST_F(SimulatedNvml, AnUnknownGpuIsReported) {
  std::string why_not;
  EXPECT_FALSE(Nvml::open("0000:ff:00.0", &why_not));
  EXPECT_EQ(why_not, "NVML reports error 6");
}

TEST_F(SimulatedNvml, AMissingLibraryIsReported) {
  std::string why_not;
  EXPECT_FALSE(Nvml::open("0000:01:00.0", &why_not, "libnvidia-ml-of-nobody.so.1"));
  EXPECT_EQ(why_not, "libnvidia-ml-of-nobody.so.1 was not found");
}

TEST_F(SimulatedNvml, RefusesCallsBeforeInitAndInvalidArguments) {
  constexpr int uninitialized = 1, invalid_argument = 2;
  nvmlDevice_st* gpu = nullptr;
  unsigned celsius = 0;
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("0000:01:00.0", &gpu), uninitialized);
  EXPECT_EQ(nvmlShutdown(), uninitialized);
  EXPECT_EQ(nvmlInit_v2(), 0);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("the first one", &gpu), invalid_argument);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("0000:01:00.0", &gpu), 0);
  EXPECT_EQ(nvmlDeviceGetTemperature(gpu, 0, &celsius), 0);
  EXPECT_EQ(nvmlDeviceGetTemperature(gpu, 0, nullptr), invalid_argument);
  EXPECT_EQ(nvmlDeviceGetTemperature(nullptr, 0, &celsius), invalid_argument);
  EXPECT_EQ(nvmlShutdown(), 0);
  EXPECT_EQ(nvmlDeviceGetTemperature(gpu, 0, &celsius), uninitialized);
}

}  // namespace nvml_test
}  // namespace millrace::cuda
