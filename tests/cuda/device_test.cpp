#include "cuda/runtime/device.hpp"

#include <gtest/gtest.h>

#include "cuda/runtime/dynamic_library.hpp"
#include "millrace/base/error.hpp"
#include "millrace/compute/execution_context.hpp"

namespace millrace::cuda {
namespace device_test {

TEST(CudaDevice, AMissingGpuIsExplainedWithWhatToDo) {
  EXPECT_EQ(
      explain_no_gpu(cudaErrorInsufficientDriver, 12040, 13000, nullptr),
      "the NVIDIA driver supports CUDA 12.4, but millrace needs 13.0. update the driver, or install NVIDIA's package "
      "cuda-compat-13-0 (on GPUs for data centers)");
  EXPECT_EQ(explain_no_gpu(cudaErrorInsufficientDriver, 0, 13000, "0"),
            "no NVIDIA driver on this machine. set run.device = cpu (or auto), or start on a node with GPUs");
  EXPECT_EQ(explain_no_gpu(cudaErrorNoDevice, 13000, 13000, ""),
            "CUDA_VISIBLE_DEVICES = '' selects no GPU (no CUDA-capable device is detected). select a GPU that exists");
  EXPECT_EQ(explain_no_gpu(cudaErrorNoDevice, 13000, 13000, nullptr),
            "no GPU (no CUDA-capable device is detected). ask the scheduler for one, or set run.device = cpu");
}

TEST(CudaDevice, AnOldGpuIsRefusedByName) {
  EXPECT_EQ(explain_old_gpu("NVIDIA H200", 9, 0), "");
  EXPECT_EQ(explain_old_gpu("NVIDIA A100", 8, 0), "");
  EXPECT_EQ(explain_old_gpu("Tesla V100", 7, 0),
            "Tesla V100 has compute capability 7.0, but millrace needs 8.0. set run.device = cpu, or use a newer GPU");
}

TEST(CudaLibrary, AMissingLibraryIsNamedAtTheFirstCall) {
  static constinit DynamicLibrary absent("libnobodys.so.7", "/nowhere", "Nobody's library (libnobodys.so.7)");
  static constinit const LazyFunction<int(int)> symbol(absent, "nobodys_function");
  for (int attempt = 0; attempt < 2; ++attempt) try {
      symbol(3);
      FAIL() << "it was called";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::config);
      EXPECT_EQ(std::string(e.what()).find("Nobody's library (libnobodys.so.7) is missing: libnobodys.so.7: "), 0u)
          << e.what();
      EXPECT_NE(std::string(e.what()).find("run.device = cpu"), std::string::npos) << e.what();
    }
}

TEST(CudaLibrary, AMissingFunctionIsNamedWithItsLibrary) {
  static constinit DynamicLibrary old("libm.so.6", "/nowhere", "Mathematics");
  static constinit const LazyFunction<int()> known(old, "fegetround"), unknown(old, "square_of_tomorrow");
  EXPECT_NO_THROW(known());
  try {
    unknown();
    FAIL() << "it was called";
  } catch (const Error& e) {
    EXPECT_EQ(
        std::string(e.what()),
        "Mathematics (libm.so.6) has no function square_of_tomorrow. install a newer version, or set run.device = cpu");
  }
}

TEST(CudaDevice, IsUsableOrSaysWhyNot) {
  std::string why_not;
  if (cuda_usable(*solo_world(), &why_not)) {
    EXPECT_EQ(why_not, "");
  } else {
    EXPECT_NE(why_not, "");
  }
}

}  // namespace device_test
}  // namespace millrace::cuda
