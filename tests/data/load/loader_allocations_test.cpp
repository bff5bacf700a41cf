// The loader and the readers allocate no memory after their first batches.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "data/load/numbers.hpp"
#include "data/raw_set.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/sources.hpp"

// Counts every allocation of this program.
static std::atomic<long> allocations{0};
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace millrace {
namespace loader_allocations_test {

using test::HostDevice;
using test::index_of;
using test::items_of;
using test::Numbers;

TEST(Loader, AllocatesNothingInSteadyState) {
  const Sampler sampler(1000, 10, 10, 5, true);
  const ShardIndex index = index_of(1000);
  HostDevice device(false);
  Numbers source;
  Loader loader(device, source, index, sampler, {2, 3, 10}, items_of(sampler, 50));
  for (int b = 0; b < 5; ++b) loader.next();
  const long before = allocations;
  for (int b = 0; b < 40; ++b) ASSERT_NE(loader.next(), nullptr);
  EXPECT_EQ(allocations, before);
}

TEST(Loader, NoEngineAllocatesInSteadyState) {
  const test::RawSet set(3000, {600, 400}, 100);
  const Sampler sampler(1000, 10, 10, 5, true);
  const auto world = solo_world();
  for (const Reader reader : {Reader::direct, Reader::mmap, Reader::uring}) {
    if (!unsupported_reason(reader, reader_facts(set.index), set.index).empty())
      continue;  // O_DIRECT cannot be used here
    HostDevice device(false);
    const auto source = make_source(*world, set.index, reader);
    Loader loader(device, *source, set.index, sampler, {2, 3, 10}, items_of(sampler, 300));
    for (int b = 0; b < 100; ++b) loader.next();
    const long before = allocations;
    for (int b = 0; b < 190; ++b) ASSERT_NE(loader.next(), nullptr);
    EXPECT_EQ(allocations, before) << source->describe();
  }
}

}  // namespace loader_allocations_test
}  // namespace millrace
