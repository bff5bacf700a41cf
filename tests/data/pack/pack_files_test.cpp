// The files that pack leaves: old shards stay until the new ones are complete, and a failure leaves none.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "data/files.hpp"
#include "millrace/base/files.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace {
namespace {

using test::message_of;
using test::TemporaryFolder;

TEST(Pack, RefusesToOverwriteWithoutTheOption) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  test::Rows in;
  pack(*world, in, {.out = folder.path, .shard_bytes = 24 * 30});
  const std::string message = message_of([&] { pack(*world, in, {.out = folder.path}); });
  EXPECT_NE(message.find("train-00000.h5"), std::string::npos) << message;
  EXPECT_NE(message.find("--overwrite"), std::string::npos) << message;
  pack(*world, in, {.out = folder.path, .overwrite = true});
  EXPECT_EQ(index_shards(*world, {.paths = {folder / "train-*.h5"}}).rows, 100);  // no old shard remains
  EXPECT_FALSE(
      message_of([&] { pack(*world, in, {.out = folder.path, .prefix = "valid", .valid_fraction = 0.5}); }).empty());
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

// The old shards may be the source: they stay until the new ones are complete.
TEST(Pack, ReplacesItsSourceOnlyWhenAllIsWritten) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  test::Rows in;
  pack(*world, in, {.out = folder.path, .shard_bytes = 24 * 30});  // four shards
  const auto shards = [&] { return expand_glob(folder / "train-*"); };
  const auto contents = [&] {
    std::string all;
    for (const auto& path : shards()) all += test::content(path);
    return all;
  };
  const std::vector<std::string> before = shards();
  const std::string bytes = contents();
  ASSERT_EQ(before.size(), 4u);
  in.fail_at = 60;  // two shards are complete by then
  message_of([&] { pack(*world, in, {.out = folder.path, .shard_bytes = 24 * 30, .overwrite = true}); }, Exit::data);
  EXPECT_EQ(shards(), before);
  EXPECT_EQ(contents(), bytes);
  std::ofstream(folder / "train-00009.h5.tmp") << "of a pack that was killed";
  const auto own = make_importer({.x = before, .y = before});
  const PackReport report = pack(*world, *own, {.out = folder.path, .overwrite = true});
  EXPECT_EQ(report.rows, 100);
  EXPECT_EQ(shards(), std::vector<std::string>{folder / "train-00000.h5"});
}

TEST(Pack, AFailingInputLeavesNoShard) {
  const TemporaryFolder folder;
  test::Rows in;
  in.fail_at = 70;
  const std::string message = message_of([&] { pack(*solo_world(), in, {.out = folder.path}); });
  EXPECT_NE(message.find("row 70 is broken"), std::string::npos) << message;
  EXPECT_TRUE(names_in(folder.path).empty());
}

TEST(Pack, AFullDiskIsAnErrorAndLeavesNoIncompleteShard) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{100 << 10, 100 << 10};
    setrlimit(RLIMIT_FSIZE, &small);
    test::Rows in;
    in.count = 20000;
    try {
      pack(*solo_world(), in, {.out = folder.path});
      _exit(1);
    } catch (const Error& e) {
      _exit(e.code() == Exit::data && std::strstr(e.what(), "train-00000.h5") ? 0 : 2);
    }
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(names_in(folder.path).empty());
}

}  // namespace
}  // namespace millrace
