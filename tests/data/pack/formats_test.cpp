// Imports of foreign formats. The test writes the files byte by byte from the specifications.
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "data/files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/data/pack/importer.hpp"
#include "millrace/io/hdf5.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace formats_test {

using test::bytes_of;

struct Formats : testing::Test {
  const test::TemporaryFolder own;
  const std::filesystem::path& folder = own.path;
  std::string put(const std::string& name, const std::string& content) {
    const std::string path = (folder / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::string put_gzip(const std::string& name, const std::string& content) {
    const std::string path = (folder / name).string();
    const gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, content.data(), unsigned(content.size()));
    gzclose(file);
    return path;
  }
};

std::string counted(std::size_t count, int first = 0) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = char((std::size_t(first) + i * 7) % 251);
  return bytes;
}

std::string idx(int type, const std::vector<std::uint32_t>& shape, const std::string& data) {
  std::string out{'\0', '\0', char(type), char(shape.size())};
  for (const std::uint32_t extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) out += char(extent >> shift);
  return out + data;
}

std::string npy(int version, const std::string& descr, const std::string& shape, const std::string& data,
                const char* fortran = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  header.append(63 - (header.size() + (version == 1 ? 10 : 12)) % 64, ' ');
  header += '\n';
  std::string out = "\x93NUMPY";
  out += char(version);
  out += '\0';
  for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte) out += char(header.size() >> (8 * byte));
  return out + header + data;
}

std::unique_ptr<Importer> import(std::vector<std::string> x, std::vector<std::string> y = {}) {
  ImportOptions options;
  options.x = std::move(x);
  options.y = std::move(y);
  return make_importer(options);
}

struct Rows {
  std::string x, y;
};

Rows read(const Importer& in, std::int64_t begin, std::int64_t count) {
  Rows rows;
  rows.x.resize(std::size_t(count * in.sample().count()) * size_of(in.x_dtype()));
  rows.y.resize(std::size_t(count * in.target().count()) * size_of(in.y_dtype()));
  in.read(begin, count, rows.x.data(), rows.y.data());
  return rows;
}

#define EXPECT_SAYS(message, words) \
  EXPECT_NE((message).find(words), std::string::npos) << "missing: " << (words) << "\nin: " << (message)

TEST_F(Formats, PlainAndGzippedMnistAreEqual) {
  const std::string images = idx(8, {5, 28, 28}, counted(5 * 784)), labels = idx(8, {5}, std::string("\3\1\4\1\5"));
  for (const bool gzip : {false, true}) {
    const auto in = gzip
                        ? import({put_gzip("images-idx3-ubyte.gz", images)}, {put_gzip("labels-idx1-ubyte.gz", labels)})
                        : import({put("images-idx3-ubyte", images)}, {put("labels-idx1-ubyte", labels)});
    EXPECT_EQ(in->rows(), 5);
    EXPECT_EQ(in->sample(), (Shape{28, 28, 1}));
    EXPECT_EQ(in->target(), Shape{});
    EXPECT_FALSE(in->channels_first());
    EXPECT_EQ(in->x_dtype(), DType::u8);
    EXPECT_EQ(in->y_dtype(), DType::u8);
    const Rows rows = read(*in, 1, 3);
    EXPECT_EQ(rows.x, counted(5 * 784).substr(784, 3 * 784));
    EXPECT_EQ(rows.y, "\1\4\1");
  }
}

TEST_F(Formats, IdxOfWiderTypesIsBigEndian) {
  const auto in = import(
      {put("x-idx", idx(0x0C, {2, 3}, std::string("\0\0\0\1\0\0\1\0\0\1\0\0\1\0\0\0\xff\xff\xff\xff\0\0\0\7", 24)))},
      {put("y-idx", idx(8, {2}, "ab"))});
  EXPECT_EQ(in->x_dtype(), DType::i32);
  EXPECT_EQ(read(*in, 0, 2).x, bytes_of<std::int32_t>({1, 256, 65536, 16777216, -1, 7}));
}

TEST_F(Formats, SeveralFilesAreConcatenated) {
  const auto part = [&](const std::string& name, std::uint32_t rows, int first) {
    return put(name, idx(8, {rows, 2, 2}, counted(rows * 4, first)));
  };
  const auto in = import({part("x1-idx", 3, 0), part("x2-idx", 2, 100)},
                         {put("y1-idx", idx(8, {3}, "abc")), put("y2-idx", idx(8, {2}, "de"))});
  EXPECT_EQ(in->rows(), 5);
  const Rows rows = read(*in, 2, 2);  // across the border between two files
  EXPECT_EQ(rows.x, counted(12).substr(8) + counted(8, 100).substr(0, 4));
  EXPECT_EQ(rows.y, "cd");
}

TEST_F(Formats, CifarPlanesBecomeChannelsLast) {
  const auto record = [](char label, int first) { return label + counted(3072, first); };
  const auto in = import({put("data_batch_1.bin", record(3, 0) + record(9, 5)), put("data_batch_2.bin", record(0, 9))});
  EXPECT_EQ(in->rows(), 3);
  EXPECT_EQ(in->sample(), (Shape{32, 32, 3}));
  const Rows rows = read(*in, 1, 2);
  EXPECT_EQ(rows.y, std::string("\x09\0", 2));
  const std::string planes = counted(3072, 9);
  for (const std::size_t pixel : {0u, 1u, 517u, 1023u})
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(rows.x[3072 + pixel * 3 + c], planes[c * 1024 + pixel]);
}

TEST_F(Formats, EveryNpyVersionIsRead) {
  const std::vector<float> values{1, -2, 3.5f, 4, 5, 6e-8f};
  const std::vector<std::int64_t> labels{7, 0};
  for (const int version : {1, 2, 3}) {
    const auto in = import({put("x.npy", npy(version, "<f4", "(2, 3)", bytes_of(values)))},
                           {put("y.npy", npy(version, "<i8", "(2,)", bytes_of(labels)))});
    EXPECT_EQ(in->rows(), 2);
    EXPECT_EQ(in->sample(), Shape{3});
    EXPECT_EQ(in->x_dtype(), DType::f32);
    EXPECT_EQ(in->y_dtype(), DType::i64);
    const Rows rows = read(*in, 1, 1);
    EXPECT_EQ(rows.x, bytes_of(values).substr(12));
    EXPECT_EQ(rows.y, bytes_of(labels).substr(8));
  }
}

TEST_F(Formats, NpyTargetsKeepTheirShape) {
  const auto in = import({put("x.npy", npy(1, "|u1", "(2, 4, 4, 4, 1)", counted(128)))},
                         {put("y.npy", npy(1, "<f4", "(2, 3)", bytes_of<float>({1, 2, 3, 4, 5, 6})))});
  EXPECT_EQ(in->sample(), (Shape{4, 4, 4, 1}));
  EXPECT_EQ(in->target(), Shape{3});
  EXPECT_EQ(read(*in, 1, 1).y, bytes_of<float>({4, 5, 6}));
}

TEST_F(Formats, NpyRefusalsSayWhy) {
  const std::string y = put("y.npy", npy(1, "|u1", "(2,)", "ab"));
  const auto of = [&](const std::string& content) { return message_of([&] { import({put("x.npy", content)}, {y}); }); };
  EXPECT_SAYS(of(npy(1, "<f4", "(2, 3)", std::string(24, 'x'), "True")), "Fortran order");
  EXPECT_SAYS(of(npy(1, "<U7", "(2, 3)", std::string(168, 'x'))), "type '<U7'");
  EXPECT_SAYS(of(npy(1, "|O", "(2, 3)", std::string(48, 'x'))), "np.stack(list(a))");
  EXPECT_SAYS(of(npy(1, "<u8", "(2, 3)", std::string(48, 'x'))), "a.astype(np.int64)");
  EXPECT_SAYS(of(npy(1, "<f4", "(2, 3)", std::string(20, 'x'))), "holds 20 bytes of data, its header promises 24");
  EXPECT_SAYS(of(npy(1, "<f4", "(3, 3)", std::string(36, 'x'))), "has 3 rows");
  EXPECT_SAYS(of(npy(1, "<f4", "(2, 3)", std::string(24, 'x')).substr(0, 40)), "x.npy");
  EXPECT_SAYS(of("no numpy at all"), "wrong magic");
  EXPECT_SAYS(of(npy(1, "<f4", "()", std::string(4, 'x'))), "0 dimensions");
}

TEST_F(Formats, IdxRefusalsSayWhy) {
  const std::string y = put("y-idx", idx(8, {2}, "ab"));
  const auto of = [&](const std::string& content) { return message_of([&] { import({put("x-idx", content)}, {y}); }); };
  EXPECT_SAYS(of(idx(8, {2, 2, 2}, "1234567")), "holds 7 bytes of data, its header promises 8");
  EXPECT_SAYS(of("\1\2\3\4\5\6\7\10 not idx"), "wrong magic");
  EXPECT_SAYS(of(idx(0x42, {2, 2}, "1234")), "element type 66");
  EXPECT_SAYS(of(idx(8, {3, 2}, "123456")), "has 3 rows");
  std::string gzip = put_gzip("x-idx.gz", idx(8, {2, 5000}, counted(10000)));
  std::filesystem::resize_file(gzip, std::filesystem::file_size(gzip) / 2);
  EXPECT_SAYS(message_of([&] { import({gzip}, {y}); }), "damaged or cut off");
}

TEST_F(Formats, CifarRefusalsSayWhy) {
  EXPECT_SAYS(message_of([&] { import({put("a.bin", counted(3000))}); }), "not a multiple of 3073");
  EXPECT_SAYS(message_of([&] { import({put("a.bin", '\x20' + counted(3072))}); }), "a label above 9");
}

TEST_F(Formats, Hdf5DatasetsOfOneFileAreRead) {
  const std::string path = (folder / "a.h5").string();
  std::vector<float> values(2 * 3 * 4 * 4);
  std::iota(values.begin(), values.end(), 0.5f);
  const std::int32_t labels[2] = {4, 2};
  {
    io::File file = io::File::create(path);
    file.create_dataset("train/x", DType::f32, {2, 3, 4, 4});
    file.create_dataset("train/y", DType::i32, {2, 1});
    file.write_rows("train/x", 0, 2, DType::f32, values.data());
    file.write_rows("train/y", 0, 2, DType::i32, labels);
    file.close();
  }
  ImportOptions options;
  options.x = {path};
  options.x_name = "train/x";
  options.y_name = "train/y";
  options.layout = Layout::channels_first;
  const auto in = make_importer(options);
  EXPECT_EQ(in->sample(), (Shape{3, 4, 4}));  // kept as stored
  EXPECT_TRUE(in->channels_first());
  EXPECT_EQ(in->target(), Shape{});
  const Rows rows = read(*in, 1, 1);
  EXPECT_EQ(rows.x, bytes_of(values).substr(48 * 4));
  EXPECT_EQ(rows.y, bytes_of<std::int32_t>({2}));
  options.y_name = "labels";
  EXPECT_SAYS(message_of([&] { make_importer(options); }), "/train/x, /train/y");
}

TEST_F(Formats, MissingInputsAreNamed) {
  EXPECT_SAYS(message_of([&] { import({(folder / "none.npy").string()}, {"y"}); }), "none.npy");
  const std::string x = put("x.npy", npy(1, "|u1", "(2, 2)", "abcd"));
  EXPECT_SAYS(message_of([&] { import({x}); }), "no labels or targets");
  EXPECT_SAYS(message_of([&] { import({put("x.npz", "PK\3\4 and more")}, {x}); }), "no directory at its end");
  EXPECT_SAYS(message_of([&] { import({put("x.dat", "what is this")}, {x}); }), "unknown format");
}

}  // namespace formats_test
}  // namespace millrace
