// Reads files of other programs and compares each data set with the CRC-32 that h5py computed for it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {
namespace foreign_test {

namespace fs = std::filesystem;
const fs::path data =
    std::getenv("MILLRACE_TEST_DATA") ? std::getenv("MILLRACE_TEST_DATA") : MILLRACE_SOURCE_DIR "/../shared/data";

struct Row {
  std::string file, dataset, shape, dtype, layout, crc;
};

std::vector<Row> expected() {
  std::ifstream in(data / "hdf5_expected.tsv");
  std::vector<Row> rows;
  std::string line;
  std::getline(in, line);  // the header line
  while (std::getline(in, line)) {
    std::vector<std::string> cells(1);
    for (const char c : line) {
      if (c == '\t')
        cells.emplace_back();
      else
        cells.back().push_back(c);
    }
    if (cells.size() >= 9) rows.push_back({cells[0], cells[1], cells[2], cells[4], cells[5], cells[8]});
  }
  return rows;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::ostringstream out;
  out << "(";
  for (std::size_t d = 0; d < shape.size(); ++d) out << (d ? ", " : "") << shape[d];
  out << (shape.size() == 1 ? ",)" : ")");
  return out.str();
}

std::string crc_of(const File& file, const DatasetInfo& info) {
  std::size_t count = 1;
  for (const auto extent : info.shape) count *= std::size_t(extent);
  std::vector<char> bytes(count * size_of(info.dtype));
  file.read_rows(info.name, 0, info.shape[0], info.dtype, bytes.data());
  return fmt::format("{:08x}", crc32(bytes.data(), bytes.size()));
}

// The expected reason why a data set cannot be read; none: it must be read.
std::string reason_for(const Row& row) {
#ifndef MILLRACE_WITH_LZ4
  if (row.dataset.ends_with("comp2")) return "install liblz4-dev and build again, or";
#endif
  if (row.dtype == "uint32" || row.dtype == "uint64") return "unsigned integers of";
  if (row.shape == "()") return "a single value";
  if (row.dtype.starts_with('[') || row.dtype.starts_with('{')) return "compound";
  if (row.dtype.starts_with("|S")) return "string";
  if (row.dtype == "object") return "variable-length";
  return "nothing: it must be read";
}

void expect_counted(const File& file, const DatasetInfo& info) {
  std::vector<double> values(std::size_t(info.shape[0]));
  file.read_rows(info.name, 0, info.shape[0], DType::f64, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], double(i));
}

TEST(Foreign, EveryDatasetIsReadCorrectlyOrRefusedWithAReason) {
  if (!fs::exists(data / "hdf5_expected.tsv")) GTEST_SKIP() << "no foreign files at " << data;
  int accepted = 0, refused = 0, unopened = 0;
  for (const Row& row : expected()) {
    SCOPED_TRACE(row.file + ":" + row.dataset);
    const std::string path = (data / row.file).string();
    try {
      const File file = File::open(path);
      if (row.dataset == "-") {
        EXPECT_TRUE(file.datasets().empty());
        continue;
      }
      ASSERT_TRUE(file.has(row.dataset));
      const DatasetInfo info = file.info(row.dataset);
      EXPECT_EQ(info.chunked, row.layout == "chunked");
      if (!info.unsupported_reason.empty()) {
        ++refused;
        SCOPED_TRACE(info.unsupported_reason);
        EXPECT_NE(info.unsupported_reason.find(reason_for(row)), std::string::npos);
        continue;
      }
      ++accepted;
      EXPECT_EQ(shape_text(info.shape), row.shape);
      // h5py had no plugin for bitshuffle, so there is no CRC-32. The elements are 0, 1, 2, ...
      if (row.file.find("bitshuffle") != row.file.npos)
        expect_counted(file, info);
      else
        EXPECT_EQ(crc_of(file, info), row.crc);
      EXPECT_EQ(info.big_endian, row.dtype.starts_with('>'));
      // Listing thousands of chunks is slow before HDF5 1.14.
      if (info.chunked && info.chunk != std::vector<std::int64_t>{1, 1}) {
        std::size_t stored = 0;
        for (const ChunkInfo& chunk : file.chunks(row.dataset)) stored += chunk.bytes;
        EXPECT_GT(stored, 0u);
      }
    } catch (const Error& e) {
      ++unopened;
      EXPECT_EQ(row.dataset, "-") << e.what();
      EXPECT_NE(std::string(e.what()).find("h5clear -s"), std::string::npos) << e.what();
    }
  }
  RecordProperty("accepted", accepted);
  RecordProperty("refused", refused);
  RecordProperty("unopened", unopened);
  EXPECT_GE(accepted, 80);
  EXPECT_EQ(unopened, 1);
}

TEST(Foreign, ContiguousStorageHoldsTheElements) {
  if (!fs::exists(data / "hdf5_expected.tsv")) GTEST_SKIP() << "no foreign files at " << data;
  int checked = 0;
  for (const Row& row : expected()) {
    if (row.layout != "contiguous" || row.crc == "-") continue;
    const std::string path = (data / row.file).string();
    const DatasetInfo info = File::open(path).info(row.dataset);
    ASSERT_TRUE(info.offset) << row.file;
    std::size_t count = 1;
    for (const auto extent : info.shape) count *= std::size_t(extent);
    const auto bytes = test::bytes_at(path, *info.offset, count * size_of(info.dtype));
    const std::string text = fmt::format("{:08x}", crc32(bytes.data(), bytes.size()));
    EXPECT_EQ(text, row.crc) << row.file << ":" << row.dataset;
    ++checked;
  }
  EXPECT_GE(checked, 8);
}

// The same elements, read from chunks at their addresses with our own codecs.
TEST(Foreign, ChunksDecodeToTheElements) {
  if (!fs::exists(data / "hdf5_expected.tsv")) GTEST_SKIP() << "no foreign files at " << data;
  std::map<std::string, int> checked;
  for (const Row& row : expected()) {
    if (row.layout != "chunked" || row.crc == "-") continue;
    if (row.dataset.ends_with("five_page")) continue;  // HDF5 1.10 needs seconds to list its 5000 chunks
    SCOPED_TRACE(row.file + ":" + row.dataset);
    const std::string path = (data / row.file).string();
    const ChunkedLayout layout = File::open(path).chunked_layout(row.dataset);
    if (const std::string lacking = unsupported_filter_reason(layout.filters); !lacking.empty()) {
      EXPECT_NE(lacking.find("-dev and build again"), std::string::npos) << lacking;
      continue;
    }
    std::string elements = test::decoded(path, layout);
    if (row.dtype.starts_with('>'))
      for (std::size_t i = 0; i < elements.size(); i += layout.element_bytes)
        std::reverse(elements.begin() + std::ptrdiff_t(i), elements.begin() + std::ptrdiff_t(i + layout.element_bytes));
    const std::string text = fmt::format("{:08x}", crc32(elements.data(), elements.size()));
    EXPECT_EQ(text, row.crc);
    std::string how;
    for (const FilterSpec& filter : layout.filters) how += filter.name + " ";
    ++checked[how];
  }
  for (const char* how : {"", "gzip ", "shuffle gzip ", "fletcher32 ", "lzf "}) EXPECT_GE(checked[how], 1) << how;
}

}  // namespace foreign_test
}  // namespace millrace::io
