#include "millrace/roofline/gpu.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace millrace::roofline {
namespace gpu_test {

TEST(Gpu, EveryNameHasAllRates) {
  EXPECT_EQ(gpu_names(), "a100, b200, h100, h200");
  for (const char* name : {"a100", "b200", "h100", "h200"}) {
    const GpuModel* gpu = find_gpu(name);
    ASSERT_NE(gpu, nullptr) << name;
    EXPECT_GT(gpu->memory_bandwidth, 1e12) << name;
    EXPECT_GT(gpu->fp16, gpu->tf32) << name;
    EXPECT_GT(gpu->tf32, gpu->fp32) << name;
    EXPECT_EQ(gpu->fp16, gpu->bf16) << name;
    EXPECT_GT(gpu->nvlink, 0) << name;
  }
  EXPECT_EQ(find_gpu("h2000"), nullptr);
}

TEST(Gpu, AFileDescribesOne) {
  const GpuModel gpu =
      parse_gpu("l4.txt",
                "# an L4\nname = NVIDIA L4\nmemory_bandwidth = 300GB/s\n\n fp16 = 121e12 # dense\n"
                "launch_gap = 2us\nmemory_efficiency = 0.9\nmultiprocessors = 58\nshared_memory = 100KiB\n");
  EXPECT_EQ(gpu.name, "NVIDIA L4");
  EXPECT_DOUBLE_EQ(gpu.memory_bandwidth, 300e9);
  EXPECT_DOUBLE_EQ(gpu.fp16, 121e12);
  EXPECT_DOUBLE_EQ(gpu.bf16, 121e12);
  EXPECT_DOUBLE_EQ(gpu.tf32, 60.5e12);
  EXPECT_DOUBLE_EQ(gpu.launch_gap, 2e-6);
  EXPECT_DOUBLE_EQ(gpu.multiprocessors, 58);
  EXPECT_DOUBLE_EQ(gpu.shared_memory, 102400);
  EXPECT_DOUBLE_EQ(gpu.memory_efficiency, 0.9);
  EXPECT_DOUBLE_EQ(gpu.tensor_efficiency, default_tensor_efficiency);
  EXPECT_EQ(gpu.nvlink, 0);
}

std::string refusal(const std::string& text) {
  return test::message_of([&] { parse_gpu("gpu.txt", text); }, Exit::config);
}

TEST(Gpu, RefusalsNameTheLineAndTheKey) {
  const std::string good = "memory_bandwidth = 1TB/s\nfp16 = 1e12\n";
  EXPECT_NO_THROW(parse_gpu("gpu.txt", good));
  EXPECT_EQ(refusal("fp16 = 1e12\n"), "gpu.txt: memory_bandwidth is missing");
  EXPECT_EQ(refusal("memory_bandwidth = 1TB/s\n"), "gpu.txt: fp16 is missing");
  EXPECT_EQ(refusal(good + "fp16 = 2e12"), "gpu.txt:3: fp16 is given twice. remove one of them");
  EXPECT_EQ(refusal("fp16 1e12"), "gpu.txt:1: 'fp16 1e12' is not a valid line. write key = value");
  EXPECT_EQ(refusal("fp16 = fast"), "gpu.txt:1: 'fast' is not a number");
  EXPECT_EQ(refusal("fp16 = inf"), "gpu.txt:1: 'inf' is not a number");
  EXPECT_EQ(refusal("fp16 = 0"), "gpu.txt:1: fp16 = 0 is out of range (must be above 0)");
  EXPECT_NE(refusal(good + "memory_efficiency = 85").find("gpu.txt:3: '85' is out of range"), std::string::npos);
  EXPECT_NE(refusal("memory_bandwidth = 3000").find("gpu.txt:1: '3000' is not a rate"), std::string::npos);
  EXPECT_NE(refusal("memory = 1TB/s").find("gpu.txt:1: unknown key 'memory'. use one of name, memory_bandwidth"),
            std::string::npos);
}

}  // namespace gpu_test
}  // namespace millrace::roofline
