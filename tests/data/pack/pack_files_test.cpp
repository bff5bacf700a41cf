// The files that pack leaves: old shards stay until the new ones are complete, and a failure leaves none.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "data/files.hpp"
#include "data/pack/npz.hpp"
#include "millrace/base/files.hpp"
#include "millrace/data/pack/importer.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace {
namespace pack_files_test {

using test::bytes_of;
using test::message_of;
using test::npy;
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

TEST(Pack, LeavesFilesOfOtherProgramsAlone) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  const test::Rows in;
  for (const char* name : {"train-00000.h5", "other-00000.h5.tmp", "train-notes.h5"})
    std::ofstream(folder / name) << "not of millrace";
  for (const bool overwrite : {false, true})
    test::expect_error(Exit::data, overwrite ? "train-00000.h5 was not written by millrace" : "exists already",
                       [&] { pack(*world, in, {.out = folder.path, .overwrite = overwrite}); });
  std::filesystem::remove(folder / "train-00000.h5");
  pack(*world, in, {.out = folder.path, .overwrite = true});
  pack(*world, in, {.out = folder.path, .overwrite = true});
  for (const char* name : {"other-00000.h5.tmp", "train-notes.h5"})
    EXPECT_EQ(test::content(folder / name), "not of millrace");
  for (const char* prefix : {"../x", "", "a/b"})
    test::expect_error(Exit::config, "--prefix", [&] { pack(*world, in, {.out = folder.path, .prefix = prefix}); });
}

TEST(Pack, RefusesLabelsThatAreNoClassNumbersAndValuesThatAreNotFinite) {
  const TemporaryFolder folder;
  const auto put = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return folder / name;
  };
  const auto packed = [&](const std::string& x, const std::string& y) {
    const auto in = make_importer({.x = {put("x.npy", x)}, .y = {put("y.npy", y)}});
    pack(*solo_world(), *in, {.out = folder.path / "out", .valid_fraction = 0.5, .overwrite = true});
  };
  const auto refused = [&](const std::string& x, const std::string& y, const std::string& words) {
    test::expect_error(Exit::data, words, [&] { packed(x, y); });
  };
  const std::string good = npy("<f4", "(2, 2)", bytes_of(std::vector<float>{1, 2, 3, 4}));
  const auto labels = [&](std::int64_t a, std::int64_t b) {
    return npy("<i8", "(2,)", bytes_of(std::vector<std::int64_t>{a, b}));
  };
  packed(good, labels(0, 3));
  packed(good, labels(-1, 3));  // the class of a row is not known
  refused(good, labels(-2, 3), "the labels reach from -2 to 3 (class numbers reach from 0");
  refused(good, labels(0, 20190203), "to 20190203 (class numbers reach from 0 to at most 16777215; -1: no label)");
  refused(good, labels(0, std::int64_t(1) << 62), "the labels reach from 0 to 4611686018427387904");
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()})
    for (const int row : {0, 1}) {  // one of them is for validation
      std::vector<float> values{1, 2, 3, 4};
      values[std::size_t(2 * row)] = bad;
      const std::string place = fmt::format("row {} of {}", row, folder.path.string());
      refused(npy("<f4", "(2, 2)", bytes_of(values)), labels(0, 1), place + "/x.npy holds values that are not finite");
      refused(good, npy("<f4", "(2, 2)", bytes_of(values)), place + "/y.npy has a target that is not finite");
    }
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

}  // namespace pack_files_test
}  // namespace millrace
