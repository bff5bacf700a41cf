// Helpers of the tests that run on several ranks.
#pragma once
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>

#include "millrace/comm/world.hpp"

namespace millrace::test {

// One folder that all ranks use. The destructor removes it.
struct SharedFolder {
  World& world;
  std::filesystem::path path;
  explicit SharedFolder(World& w) : world(w) {
    path = w.broadcast_string(
        (std::filesystem::temp_directory_path() / fmt::format("millrace_pack_{}", getpid())).string());
  }
  ~SharedFolder() {
    world.barrier();
    std::error_code ignored;
    if (world.rank() == 0) std::filesystem::remove_all(path, ignored);
  }
};

// Fails on all ranks if `mine` is false on any.
inline void everywhere(World& world, bool mine, const std::string& what) {
  std::int64_t failed = mine ? 0 : 1;
  world.all_reduce(std::span<std::int64_t>(&failed, 1), World::Reduce::sum);
  EXPECT_EQ(failed, 0) << what << (mine ? "" : " (on this rank)");
}

}  // namespace millrace::test
