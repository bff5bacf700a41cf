// Files of other programs, against the CRC-32 of every data set's elements that h5py computed.
#include <gtest/gtest.h>

#include <sstream>

#include "files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;
const fs::path data = fs::path(MILLRACE_SOURCE_DIR) / "../shared/data";

struct Row {
  std::string file, dataset, shape, dtype, layout, crc;
};

std::vector<Row> expected() {
  std::ifstream in(data / "hdf5_expected.tsv");
  std::vector<Row> rows;
  std::string line;
  std::getline(in, line);  // names of the columns
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
  char text[16];
  std::snprintf(text, sizeof text, "%08x", crc32(bytes.data(), bytes.size()));
  return text;
}

TEST(Foreign, EveryDatasetIsReadRightOrRefusedWithAReason) {
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
      if (!info.refusal.empty()) {
        ++refused;
        const bool may = row.crc == "-" || row.dtype == "uint32" || row.dtype == "uint64" ||
                         row.dataset.ends_with("lzf") || row.shape == "()";
        EXPECT_TRUE(may) << "refused: " << info.refusal;
        continue;
      }
      ++accepted;
      EXPECT_EQ(shape_text(info.shape), row.shape);
      EXPECT_EQ(crc_of(file, info), row.crc);
      EXPECT_EQ(info.big_endian, row.dtype.starts_with('>'));
      if (info.chunked &&
          info.chunk != std::vector<std::int64_t>{1, 1}) {  // thousands of chunks: slow before HDF5 1.14
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
  RecordProperty("accepted", accepted), RecordProperty("refused", refused), RecordProperty("unopened", unopened);
  EXPECT_GE(accepted, 60);
  EXPECT_EQ(unopened, 1);
}

TEST(Foreign, ContiguousExtentsHoldTheElements) {
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
    char text[16];
    std::snprintf(text, sizeof text, "%08x", crc32(bytes.data(), bytes.size()));
    EXPECT_EQ(text, row.crc) << row.file << ":" << row.dataset;
    ++checked;
  }
  EXPECT_GE(checked, 8);
}

}  // namespace
}  // namespace millrace::io
