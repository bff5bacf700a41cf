// The step loop allocates nothing. While steps run, all calls of operator new from this program's own code are counted.
// Calls from libraries do not count: oneDNN unavoidably creates a small map for each call of a primitive.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "train/runs.hpp"
#include "train/trainer.hpp"

extern char __executable_start, etext;

namespace {
std::atomic<long> allocations{0};
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // they have their own operator new
#define MR_COUNTS 0
#else
#define MR_COUNTS 1
// GCC warns about a mismatched pair when it inlines only one of the two operators.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t bytes) {
  const char* caller = static_cast<const char*>(__builtin_return_address(0));
  if (caller >= &__executable_start && caller < &etext) ++allocations;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace millrace {
namespace memory_test {

void expect_no_allocation(int zero) {
  if (!MR_COUNTS) GTEST_SKIP() << "a sanitizer has its own operator new";
  const test::TemporaryFolder folder;
  RunConfig c = test::small_run(true, "4096");
  c.run.dir = (folder.path / "run").string();
  c.train.micro_batch = 8;
  c.data.prefetch = 4;  // with auto the ring could still grow
  c.optim.zero = zero;
  run_thread_world(2, [&](World& world) {
    Trainer trainer(world, c);
    for (int i = 0; i < 30; ++i) trainer.one_step();  // warm-up: every ring slot has held every micro-batch of a step
    world.barrier();
    const long before = allocations;
    for (int i = 0; i < 40; ++i) trainer.one_step();
    world.barrier();
    if (world.rank() == 0) {
      EXPECT_EQ(allocations - before, 0) << "in 40 steps of two ranks";
    }
    world.barrier();
  });
}

TEST(Memory, TheStepLoopAllocatesNothing) { expect_no_allocation(0); }
TEST(Memory, TheStepLoopOfZeroAllocatesNothing) { expect_no_allocation(1); }

}  // namespace memory_test
}  // namespace millrace
