#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {
namespace errors_test {

using test::TemporaryFolder;

#define EXPECT_SAYS(message, words) \
  EXPECT_NE((message).find(words), std::string::npos) << "missing: " << (words) << "\nin: " << (message)

TEST(Errors, OpeningErrorsNamePathAndReason) {
  const TemporaryFolder folder;
  const auto opening = [&](const std::string& path) {
    const std::string message = message_of([&] { File::open(path); });
    EXPECT_SAYS(message, path);
    return message;
  };
  EXPECT_SAYS(opening(folder / "missing.h5"), "No such file or directory");
  EXPECT_SAYS(opening(folder.path.string()), "it is a folder");
  std::ofstream(folder / "empty.h5").close();
  EXPECT_SAYS(opening(folder / "empty.h5"), "is empty");
  std::ofstream(folder / "text.h5") << "x,y\n1,2\n" << std::string(5000, '3');
  EXPECT_SAYS(opening(folder / "text.h5"), "is not an HDF5 file");
}

TEST(Errors, TruncatedFilesAreReported) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  {
    File file = File::create(path);
    file.create_dataset("x", DType::f32, {10000});
    file.close();
  }
  std::filesystem::resize_file(path, 20000);
  const std::string message = message_of([&] { File::open(path); });
  EXPECT_SAYS(message, "truncated file");
  EXPECT_SAYS(message, "the file is cut off");
}

TEST(Errors, AnUnreadableDatasetIsNotReportedAsMissing) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  File::create(path).close();
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Lcreate_soft("/nowhere", file, "x", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  const File opened = File::open(path);
  EXPECT_FALSE(opened.has("y"));
  EXPECT_SAYS(message_of([&] { opened.has("x"); }), "a.h5:/x cannot be opened (");
}

TEST(Errors, AFileLeftOpenForWritingIsExplained) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  if (fork() == 0) {  // a writer of the newest format that is killed
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    _exit(0);
  }
  int status = 0;
  wait(&status);
  EXPECT_SAYS(message_of([&] { File::open(path); }), "h5clear -s");
}

TEST(Errors, TransferErrorsNameDatasetAndRows) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  File file = File::create(path);
  file.create_dataset("x", DType::f32, {4, 2});
  float values[16] = {};
  EXPECT_SAYS(message_of([&] { file.read_rows("x", 3, 2, DType::f32, values); }), "rows 3 to 5 of " + path + ":/x");
  EXPECT_SAYS(message_of([&] { file.write_rows("x", -1, 2, DType::f32, values); }), "it has 4");
  EXPECT_SAYS(message_of([&] { file.info("group/y"); }), "has no data set /group/y");
  EXPECT_SAYS(message_of([&] { file.create_dataset("x", DType::f32, {1}); }), "H5Dcreate2 failed");
  file.close();
  File reader = File::open(path);
  EXPECT_SAYS(message_of([&] { reader.write_rows("x", 0, 1, DType::f32, values); }), "H5Dwrite failed");
  EXPECT_SAYS(message_of([&] { reader.set("/", "key", 1.0); }), "H5A");
}

TEST(Errors, CreationErrorsNameTheReason) {
  const TemporaryFolder folder;
  EXPECT_SAYS(message_of([&] { File::create(folder / "none/a.h5"); }), "No such file or directory");
}

// Initializes the room before any test calls HDF5 directly, as the program does.
const std::string version = library_version();

// A limit of the file size simulates a full disk. It needs its own process, because the limit applies to the process.
TEST(Errors, FullDiskIsReportedOnWrite) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5", log = folder / "log";
  if (fork() == 0) {
    signal(SIGXFSZ, SIG_IGN);
    File file = File::create(path);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::vector<char> bytes(4 << 20, 'x');
    std::string message;
    try {
      file.create_dataset("x", DType::u8, {4 << 20});
      file.write_rows("x", 0, 4 << 20, DType::u8, bytes.data());
      file.close();
    } catch (const Error& e) {
      message = e.what();
    }
    std::ofstream(log) << message;
    std::exit(0);
  }
  int status = 0;
  wait(&status);
  ASSERT_TRUE(WIFEXITED(status));
  std::ifstream in(log);
  const std::string message((std::istreambuf_iterator<char>(in)), {});
  EXPECT_SAYS(message, path);
  EXPECT_SAYS(message, "File too large");
}

TEST(Errors, TheProgramContinuesAfterAFullDisk) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  if (fork() == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const std::vector<char> bytes(4 << 20, 'x');
    try {
      File file = File::create(path);
      const rlimit limit{1 << 20, 1 << 20};
      setrlimit(RLIMIT_FSIZE, &limit);
      file.create_dataset("x", DType::u8, {4 << 20});
      file.write_rows("x", 0, 4 << 20, DType::u8, bytes.data());
      _exit(3);
    } catch (const Error&) {
    }
    File other = File::create(folder / "b.h5");
    other.create_dataset("x", DType::u8, {1000});
    other.write_rows("x", 0, 1000, DType::u8, bytes.data());
    other.close();
    std::exit(0);
  }
  int status = 0;
  wait(&status);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Errors, CloseReportsErrorsAndMayBeCalledTwice) {
  const TemporaryFolder folder;
  File file = File::create(folder / "a.h5");
  file.create_dataset("x", DType::f32, {4, 2});
  file.close();
  file.close();
  EXPECT_THROW(file.datasets(), Error);
}

}  // namespace errors_test
}  // namespace millrace::io
