// Files that h5py and hdf5plugin wrote (h5py_files.py), compared byte for byte, by every engine that supports them. The
// test long.h5py makes the files and runs this test.
#include <gtest/gtest.h>

#include <numeric>

#include "data/files.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace {
namespace h5py_test {

void expect_rows(World& world, const ShardIndex& d, Reader reader, const std::string& x, const std::string& y) {
  std::vector<std::int64_t> ids(std::size_t(d.rows));
  const std::size_t y_bytes = y_batch_bytes(d);
  const FaultOptions unmonitored{.slow_read = 0, .read_timeout = 0};  // saves a thread for each of thousands of files
  const auto source = make_source(world, d, reader, unmonitored);
  for (const bool shuffle : {false, true}) {
    Sampler(d.rows, d.rows, d.rows, 3, shuffle).ids({0, 0, 0, d.rows}, ids.data());
    std::string got_x(ids.size() * d.sample_bytes(), '?'), got_y(ids.size() * y_bytes, '?');
    source->read(ids, got_x.data(), got_y.data());
    ASSERT_EQ(x.size(), got_x.size());
    ASSERT_EQ(y.size(), got_y.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto id = std::size_t(ids[i]);
      ASSERT_EQ(got_x.compare(i * d.sample_bytes(), d.sample_bytes(), x, id * d.sample_bytes(), d.sample_bytes()), 0)
          << "sample " << id << " by " << name_of(reader);
      ASSERT_EQ(got_y.compare(i * y_bytes, y_bytes, y, id * y_bytes, y_bytes), 0)
          << "target " << id << " by " << name_of(reader);
    }
  }
}

TEST(H5py, FilesAreReadAsItWroteThemOrRefused) {
  const char* const where = std::getenv("MILLRACE_TEST_H5PY");
  if (!where) GTEST_SKIP() << "run ctest -R long.h5py, which makes the files";
  const std::filesystem::path folder = where;
  const auto world = solo_world();
  std::ifstream list(folder / "list.txt");
  std::string name, expected;
  int files = 0, without_hdf5 = 0;
  while (list >> name >> expected) {
    SCOPED_TRACE(name);
    const DataOptions options{.paths = {(folder / (name + ".h5")).string()}, .layout = Layout::channels_last};
    ++files;
    if (expected == "refuse") {
      const std::string message = test::message_of([&] { index_shards(*world, options); });
      EXPECT_NE(message.find(name + ".h5"), std::string::npos) << message;
      continue;
    }
    try {
      const ShardIndex d = index_shards(*world, options);
      const std::string x = test::content(folder / (name + ".x")), y = test::content(folder / (name + ".y"));
      const ReaderFacts facts = reader_facts(d);
      without_hdf5 += readable_without_hdf5(d);
      for (const Reader reader : {Reader::automatic, Reader::direct, Reader::mmap, Reader::uring, Reader::mpio})
        if (reader == Reader::automatic || uses_mpi_io(reader) || unsupported_reason(reader, facts, d).empty())
          expect_rows(*world, d, reader, x, y);
    } catch (const Error& e) {
      if (expected != "newer" || std::string(e.what()).find("a newer HDF5 wrote it") == std::string::npos)
        ADD_FAILURE() << e.what();
    }
  }
  EXPECT_GT(files, 500);
  std::printf("%d files, %d of them read without the HDF5 library\n", files, without_hdf5);
}

}  // namespace h5py_test
}  // namespace millrace
