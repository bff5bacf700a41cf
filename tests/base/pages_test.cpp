#include "millrace/base/pages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace millrace {
namespace {

std::unique_ptr<char, decltype(&std::free)> allocate(std::size_t bytes) {
  return {static_cast<char*>(allocate_pages(bytes)), &std::free};
}

TEST(Pages, HoldZerosAndBeginAtAPage) {
  for (const std::size_t bytes : {std::size_t(1), page_bytes, page_bytes + 1, std::size_t(5) << 20}) {
    const auto data = allocate(bytes);
    ASSERT_TRUE(data);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data.get()) % page_bytes, 0u);
    EXPECT_TRUE(std::all_of(data.get(), data.get() + padded_to_pages(bytes), [](char c) { return c == 0; }));
  }
}

TEST(Pages, LargeMemoryBeginsAtAHugePage) {
  const auto data = allocate(std::size_t(5) << 20);
  ASSERT_TRUE(data);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data.get()) % (2u << 20), 0u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the program instead
TEST(Pages, WithoutMemoryThereIsNone) { EXPECT_FALSE(allocate(std::size_t(1) << 60)); }
#endif

}  // namespace
}  // namespace millrace
