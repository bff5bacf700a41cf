#include "millrace/base/files.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "millrace/base/atomic_file.hpp"
#include "millrace/base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace files_test {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  const test::TemporaryFolder own;
  const fs::path& folder = own.path;
};

TEST_F(Files, WrittenContentReadsBackAndLeavesNoTemporaryFile) {
  const std::string content("with\0zero\n", 10);
  write_file_atomically(folder / "a", "old");
  write_file_atomically(folder / "a", content);
  EXPECT_EQ(read_file(folder / "a"), content);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

TEST_F(Files, AFailedWriteLeavesTheOldContentAndNoTemporaryFile) {
  const fs::path file = folder / "file";
  write_file_atomically(file, "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  test::expect_error(Exit::data, "cannot write", [&] { write_file_atomically(file, "longer than four bytes"); });
  test::expect_error(Exit::data, "cannot write", [&] { replace_file(file, "longer than four bytes"); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(file, 100), "old");
  EXPECT_FALSE(fs::exists(folder / "file.tmp"));
}

TEST_F(Files, FailuresNamePathAndReason) {
  EXPECT_EQ(test::message_of([&] { read_file(folder / "none"); }),
            "cannot open " + (folder / "none").string() + " (No such file or directory)");
  EXPECT_NE(test::message_of([&] { write_file_atomically(folder / "no/such", "x"); }).find("No such file"),
            std::string::npos);
  EXPECT_NE(test::message_of([] { write_file_atomically("/proc/version/x", "x"); }).find("/proc/version/x"),
            std::string::npos);
}

// None of these may wait for a writer, or read without end.
TEST_F(Files, OnlyRegularFilesAreReadOrReplaced) {
  ::mkfifo((folder / "pipe").c_str(), 0600);
  fs::create_symlink("/dev/zero", folder / "zero");
  const std::pair<fs::path, std::string> others[] = {
      {folder, "folder"}, {folder / "pipe", "named pipe"}, {folder / "zero", "device"}};
  for (const auto& [path, kind] : others) {
    const std::string refusal =
        "cannot open " + path.string() + " (it is a " + kind + ", not a file). name a regular file";
    EXPECT_EQ(test::message_of([&, at = path] { read_file(at); }), refusal);
    EXPECT_EQ(test::message_of([&, at = path] { replace_file(at, "x"); }), refusal);
    EXPECT_EQ(test::message_of([&, at = path] { write_file_atomically(at, "x"); }), refusal);
    EXPECT_EQ(test::message_of([&, at = path] { AtomicFile file(at); }), refusal);
  }
  fs::create_symlink(folder / "pipe", folder / "a.tmp");
  test::expect_error(Exit::data, "a.tmp (it is a named pipe", [&] { replace_file(folder / "a", "x"); });
  write_file_atomically(folder / "other", "kept");
  fs::create_symlink(folder / "other", folder / "b.tmp");
  EXPECT_THROW(replace_file(folder / "b", "x"), Error);
  EXPECT_EQ(read_file(folder / "other"), "kept");
  fs::create_symlink("/dev/null", folder / "null");
  EXPECT_EQ(read_file(folder / "null"), "");
  test::expect_error(Exit::data, "null (it is a device)", [&] { replace_file(folder / "null", "x"); });
  test::expect_error(Exit::data, "null (it is a device)", [&] { AtomicFile file(folder / "null"); });
}

TEST_F(Files, FilesOfOtherProgramsAreRecognised) {
  const fs::path file = folder / "a";
  require_own_file(file, "# mine");
  write_file_atomically(file, "");
  require_own_file(file, "# mine");
  write_file_atomically(file, "# mine, and more");
  require_own_file(file, "# mine");
  for (const char* other : {"# mi", "127.0.0.1 localhost"}) {
    write_file_atomically(file, other);
    EXPECT_EQ(test::message_of([&] { require_own_file(file, "# mine"); }),
              file.string() + " exists and was not written by millrace. name another file, or remove this one");
  }
}

TEST_F(Files, AFileAboveTheLimitIsNotRead) {
  write_file_atomically(folder / "a", "12345");
  EXPECT_EQ(read_file(folder / "a", 5), "12345");
  test::expect_error(Exit::data, "a is too large (more than 4 bytes)", [&] { read_file(folder / "a", 4); });
}

TEST_F(Files, GlobsExpandSorted) {
  for (const char* name : {"b-1.h5", "b-0.h5", "c.txt"}) write_file_atomically(folder / name, "");
  const auto found = expand_glob((folder / "b-*.h5").string());
  EXPECT_EQ(found, (std::vector<std::string>{(folder / "b-0.h5").string(), (folder / "b-1.h5").string()}));
  EXPECT_EQ(expand_glob((folder / "c.txt").string()).size(), 1u);
  EXPECT_TRUE(expand_glob((folder / "d*").string()).empty());
}

TEST_F(Files, Crc32EqualsThatOfZlib) {
  EXPECT_EQ(crc32("123456789", 9), 0xcbf43926u);
  EXPECT_EQ(crc32("6789", 4, crc32("12345", 5)), 0xcbf43926u);
}

// The examples of RFC 3720, B.4.
TEST_F(Files, Crc32cGivesThePublishedValues) {
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c("6789", 4, crc32c("12345", 5)), 0xe3069283u);
  std::string up, down;
  for (int i = 0; i < 32; ++i) {
    up += char(i);
    down += char(31 - i);
  }
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
  EXPECT_EQ(crc32c(up.data(), 32), 0x46dd794eu);
  EXPECT_EQ(crc32c(down.data(), 32), 0x113fdb5cu);
  EXPECT_EQ(crc32c("", 0), 0u);
}

TEST_F(Files, ReplacedContentReadsBackAndLeavesNoTemporaryFile) {
  for (const char* content : {"old and longer", "new"}) replace_file(folder / "a", content);
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  EXPECT_THROW(replace_file(folder / "no/such", "x"), Error);
}

}  // namespace files_test
}  // namespace millrace
