#include "cuda/runtime/nvml.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace millrace::cuda {
namespace {

TEST(Nvml, ReadsWhatTheGpuReportsAndLeavesTheRestUnknown) {
  std::string why_not;
  auto nvml = Nvml::open("0000:1b:00.0", &why_not, MILLRACE_FAKE_NVML);
  ASSERT_TRUE(nvml) << why_not;
  DeviceHealth h;
  nvml->read(h);
  EXPECT_EQ(h.clock_mhz, 1410);
  EXPECT_EQ(h.top_clock_mhz, 1980);
  EXPECT_DOUBLE_EQ(h.watts, 612.5);
  EXPECT_EQ(h.limit_watts, 700);
  EXPECT_EQ(h.celsius, 66);
  EXPECT_EQ(h.joules, -1) << "this GPU does not report its energy";
  EXPECT_EQ(h.pcie_generation, 5);
  EXPECT_EQ(h.top_pcie_generation, 5);
  EXPECT_EQ(h.pcie_lanes, 8);
  EXPECT_EQ(h.top_pcie_lanes, 16);
  EXPECT_EQ(h.nvlinks, 3);
  EXPECT_DOUBLE_EQ(h.nvlink_rate, 3 * 26.562e9);
  EXPECT_EQ(h.throttle_reasons, (std::vector<std::string>{"power cap", "heat (hardware)"}));
  void* library = dlopen(MILLRACE_FAKE_NVML, RTLD_NOW);
  ASSERT_TRUE(library);
  const auto users = reinterpret_cast<int (*)()>(dlsym(library, "nvml_users"));
  EXPECT_EQ(users(), 1);
  nvml.reset();
  EXPECT_EQ(users(), 0);
  dlclose(library);
}

TEST(Nvml, AnUnknownGpuIsReported) {
  std::string why_not;
  EXPECT_FALSE(Nvml::open("0000:ff:00.0", &why_not, MILLRACE_FAKE_NVML));
  EXPECT_EQ(why_not, "NVML reports error 6");
}

TEST(Nvml, AMissingLibraryIsReported) {
  std::string why_not;
  EXPECT_FALSE(Nvml::open("0000:1b:00.0", &why_not, "libnvidia-ml-of-nobody.so.1"));
  EXPECT_EQ(why_not, "libnvidia-ml-of-nobody.so.1 was not found");
}

}  // namespace
}  // namespace millrace::cuda
