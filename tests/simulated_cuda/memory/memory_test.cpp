// Device memory of the simulated CUDA: who may touch it, and allocations in any order.
#include <cuda_runtime_api.h>

#include <map>
#include <random>
#include <vector>

#include "cuda/block/block.hpp"
#include "simulated_cuda/rules.hpp"

namespace millrace::test {
namespace memory_test {

struct Fill {
  unsigned char* to;
  unsigned char value;
  void operator()(std::int64_t i) const { to[i] = value; }
};

class SimulatedMemory : public testing::Test {
 protected:
  SimulatedMemory() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // after a fork() the threads of the streams would be missing
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~SimulatedMemory() override { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }

  static unsigned char* allocate(std::size_t bytes) {
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, bytes), cudaSuccess);
    return static_cast<unsigned char*>(p);
  }
  static void free(void* p) { EXPECT_EQ(cudaFree(p), cudaSuccess); }
  void fill(unsigned char* p, std::int64_t bytes, unsigned char value) {
    for_each(cuda::LaunchContext{stream_, 1}, bytes, Fill{p, value});
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  void expect_values(const unsigned char* p, std::size_t bytes, unsigned char value) {
    std::vector<unsigned char> read(bytes);
    EXPECT_EQ(cudaMemcpyAsync(read.data(), p, bytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(read, std::vector<unsigned char>(bytes, value));
  }

 private:
  cudaStream_t stream_ = nullptr;
};

#define EXPECT_REFUSED(work) EXPECT_VIOLATION(work, "'.*Fill.*' in a stream: touches .* no allocated memory")

constexpr std::size_t page = 4096;
constexpr std::size_t large = 1 << 20;

TEST_F(SimulatedMemory, RefusesTheHost) {
  unsigned char* const p = allocate(1);
  EXPECT_VIOLATION(*p = 1, "the host: touches .* memory of the GPU");
  fill(p, 1, 7);
  EXPECT_VIOLATION(*p = 1, "the host: touches .* memory of the GPU");
  free(p);
}

TEST_F(SimulatedMemory, RefusesWorkOutsideOfAllocations) {
  unsigned char* const freed = allocate(large);
  unsigned char* const behind = allocate(large);
  fill(freed, large, 1);
  EXPECT_REFUSED(fill(freed + large, page, 1));  // ends in the page behind
  free(freed);
  EXPECT_REFUSED(fill(freed, 1, 1));
  EXPECT_REFUSED(fill(freed + large - 1, 1, 1));
  unsigned char* const again = allocate(large / 2);  // may lie where memory was freed
  fill(again, large / 2, 2);
  EXPECT_REFUSED(fill(again + large / 2, page, 1));
  free(behind);
  EXPECT_REFUSED(fill(behind, 1, 1));
  EXPECT_REFUSED(fill(behind + large - 1, 1, 1));
  expect_values(again, large / 2, 2);
  free(again);
  EXPECT_REFUSED(fill(again, 1, 1));
}

TEST_F(SimulatedMemory, AllocationsInAnyOrderKeepTheirValues) {
  struct Block {
    std::size_t bytes;
    unsigned char value;
  };
  std::map<unsigned char*, Block> blocks;
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i)
    if (blocks.size() < 4 || (blocks.size() < 12 && random() % 2)) {
      const Block b{1 + random() % (5 * page), static_cast<unsigned char>(i % 255)};
      unsigned char* const p = allocate(b.bytes);
      expect_values(p, b.bytes, 0xff);
      fill(p, std::int64_t(b.bytes), b.value);
      blocks[p] = b;
    } else {
      const auto b = std::next(blocks.begin(), long(random() % blocks.size()));
      expect_values(b->first, b->second.bytes, b->second.value);
      free(b->first);
      blocks.erase(b);
    }
  for (const auto& [p, b] : blocks) {
    expect_values(p, b.bytes, b.value);
    free(p);
  }
}

}  // namespace memory_test
}  // namespace millrace::test
