// Edge cases of importers: damaged headers, detection of formats, files that do not fit together.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "data/pack/npz.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/pack/importer.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace importer_edges_test {

namespace fs = std::filesystem;
using test::npy;
using test::npy_with;

class ImportersEdges : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  const test::TemporaryFolder folder_;
};

std::string idx(int type, const std::vector<std::uint32_t>& shape, const std::string& data) {
  std::string out{'\0', '\0', char(type), char(shape.size())};
  for (const std::uint32_t extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) out += char(extent >> shift & 255);
  return out + data;
}

ImportOptions files(std::vector<std::string> x, std::vector<std::string> y = {}) {
  ImportOptions o;
  o.x = std::move(x);
  o.y = std::move(y);
  return o;
}

std::string first_x(const Importer& in, std::int64_t rows) {
  std::string x(std::size_t(rows * in.sample().count()) * size_of(in.x_dtype()), '\0');
  std::string y(std::size_t(rows * in.target().count()) * size_of(in.y_dtype()), '\0');
  in.read(0, rows, x.data(), y.data());
  return x;
}

// Expects that make_importer fails with `code` and a message that contains all of `parts`.
void expect_refusal(const ImportOptions& o, const std::vector<std::string>& parts, Exit code = Exit::data) {
  try {
    const auto importer = make_importer(o);
    ADD_FAILURE() << "accepted: " << importer->describe();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const auto& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST_F(ImportersEdges, ContentsDetermineTheFormat) {
  const std::string y = put("labels", idx(8, {2}, "ab"));
  EXPECT_EQ(first_x(*make_importer(files({put("images", idx(8, {2, 2}, "abcd"))}, {y})), 2), "abcd");
  EXPECT_EQ(first_x(*make_importer(files({put("array.data", npy("|u1", "(2, 2)", "efgh"))}, {y})), 2), "efgh");
  {
    io::File file = io::File::create(path("set.data"));
    file.create_dataset("x", DType::u8, {2, 2});
    file.write_rows("x", 0, 2, DType::u8, "ijkl");
    file.close();
  }
  EXPECT_EQ(first_x(*make_importer(files({path("set.data")}, {y})), 2), "ijkl");
  expect_refusal(files({put("text.h5", "this is no HDF5 file")}, {y}), {path("text.h5"), "not an HDF5 file"});
  expect_refusal(files({put("none", "")}, {y}), {path("none"), "unknown format"});
}

// int64 has its own test below.
TEST_F(ImportersEdges, EveryNpyTypeIsRead) {
  const std::string y = put("y.npy", npy("|u1", "(2,)", "ab"));
  const std::pair<const char*, DType> types[] = {{"|u1", DType::u8},  {"|i1", DType::i8},  {"|b1", DType::i8},
                                                 {"<u2", DType::u16}, {"<i2", DType::i16}, {"<i4", DType::i32},
                                                 {"<f2", DType::f16}, {"<f4", DType::f32}, {"<f8", DType::f64}};
  for (const auto& [descr, dtype] : types) {
    std::string data(2 * 3 * size_of(dtype), '\0');
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = char(i * 5 + 1);
    const auto in = make_importer(files({put("x.npy", npy(descr, "(2, 3)", data))}, {y}));
    EXPECT_EQ(in->x_dtype(), dtype) << descr;
    EXPECT_EQ(first_x(*in, 2), data) << descr;
  }
  const auto big = make_importer(files({put("x.npy", npy(">i2", "(2, 1)", {1, 2, 3, 4}))}, {y}));
  EXPECT_EQ(first_x(*big, 2), std::string({2, 1, 4, 3}));
  for (const char* descr : {"<u8", "<c8", "|O"})
    expect_refusal(files({put("x.npy", npy(descr, "(2, 1)", std::string(16, 'x')))}, {y}), {descr});
}

TEST_F(ImportersEdges, NpyHeadersOfOtherProgramsAreRead) {
  const std::string y = put("y.npy", npy("|u1", "(2,)", "ab"));
  const auto x = [&](const std::string& header) { return files({put("x.npy", npy_with(header, "abcd"))}, {y}); };
  EXPECT_EQ(make_importer(x("{'shape': (2,2),'descr':'|u1','fortran_order':False}"))->sample(), Shape{2});
  expect_refusal(x("{'descr': '|u1', 'fortran_order': False}"), {"'shape'"});
  expect_refusal(x("{'descr': '|u1', 'fortran_order': False, 'shape':"), {"x.npy"});
  expect_refusal(x("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}"), {"x.npy"});
  expect_refusal(x("{'descr': '|u1', 'fortran_order': False, 'shape': (2, -2)}"), {"(2, -2)"});
  expect_refusal(x("{'descr': '|u1', 'fortran_order': False, 'shape': (2, two)}"), {"(2, two)"});
  expect_refusal(x("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 99999999999999999999)}"), {"shape"});
}

// A size of 2^64 bytes would overflow to 0, and the data would be read far behind the end.
TEST_F(ImportersEdges, ExtentsThatOverflowAreRefused) {
  const std::string y = put("y-idx", idx(8, {2}, "ab"));
  expect_refusal(files({put("x-idx", idx(8, {65536, 65536, 65536, 65536}, ""))}, {y}), {"damaged header"});
  expect_refusal(files({put("x.npy", npy("|u1", "(4294967296, 4294967296)", ""))}, {y}), {"damaged header"});
}

TEST_F(ImportersEdges, WrongIdxSizesAreRefused) {
  const std::string y = put("y-idx", idx(8, {2}, "ab"));
  const auto x = [&](const std::string& bytes) { return files({put("x-idx", bytes)}, {y}); };
  expect_refusal(x(idx(8, {2, 2}, "abcde")), {"5 bytes", "promises 4"});
  expect_refusal(x(idx(8, {2, 1, 1, 1, 1, 1}, "ab")), {"6 dimensions"});
  expect_refusal(x(idx(8, {2, 2, 2}, "").substr(0, 9)), {"3 dimensions"});
  expect_refusal(x(idx(8, {2}, "ab")), {"at least one dimension"});
  expect_refusal(files({put("x-idx", idx(8, {0, 2}, ""))}, {put("none-idx", idx(8, {0}, ""))}), {"no rows"});
}

TEST_F(ImportersEdges, TheDamagedCifarFileIsNamed) {
  const std::string good = put("a.bin", std::string(3073, '\1'));
  expect_refusal(files({good, put("b.bin", std::string(3072, '\1'))}), {path("b.bin"), "3072 bytes"});
  expect_refusal(files({good, put("b.bin", std::string(3073, '\12'))}), {path("b.bin"), "label above 9"});
  expect_refusal(files({put("b.bin", "")}), {path("b.bin")});
  expect_refusal(files({good}, {good}), {"--y"}, Exit::config);
}

TEST_F(ImportersEdges, FilesThatDoNotFitTogetherAreRefused) {
  const std::string x = put("x.npy", npy("|u1", "(2, 2)", "abcd")), wide = put("wide.npy", npy("|u1", "(2, 1)", "ab")),
                    y = put("y.npy", npy("|u1", "(2,)", "ab")), other = put("other.npy", npy("<i2", "(2,)", "abcd"));
  expect_refusal(files({x, wide}, {y, y}), {wide, "1 uint8", "2 uint8", "equal"});
  expect_refusal(files({x, x}, {y, other}), {other, "int16", "uint8"});
  expect_refusal(files({x, x}, {y}), {"2 files", "1 of y"}, Exit::config);
  expect_refusal(files({}), {"--x"}, Exit::config);
  EXPECT_EQ(make_importer(files({path("[x]*.npy")}, {path("y.npy")}))->rows(), 2);
}

TEST_F(ImportersEdges, LayoutFollowsTheShapeOrTheOption) {
  const auto layout_of = [&](const std::string& shape, std::size_t bytes, Layout asked) {
    ImportOptions o =
        files({put("x.npy", npy("|u1", shape, std::string(bytes, 'x')))}, {put("y.npy", npy("|u1", "(2,)", "ab"))});
    o.layout = asked;
    const auto in = make_importer(o);
    return fmt::format("{}{}", in->sample().str(), in->channels_first() ? " first" : " last");
  };
  EXPECT_EQ(layout_of("(2, 3, 5, 7)", 210, Layout::automatic), "3x5x7 first");
  EXPECT_EQ(layout_of("(2, 3, 5, 7)", 210, Layout::channels_last), "3x5x7 last");
  EXPECT_EQ(layout_of("(2, 5, 7, 3)", 210, Layout::automatic), "5x7x3 last");
  EXPECT_EQ(layout_of("(2, 5, 7)", 70, Layout::automatic), "5x7x1 last");
  EXPECT_EQ(layout_of("(2, 5, 7)", 70, Layout::channels_last), "5x7 last");
  EXPECT_EQ(layout_of("(2, 5, 7)", 70, Layout::channels_first), "5x7 first");
  EXPECT_EQ(layout_of("(2, 35)", 70, Layout::channels_first), "35 last");
}

TEST_F(ImportersEdges, AttributesOfHdf5FilesAreApplied) {
  const auto write = [&](const std::string& name, const std::string& layout, double scale) {
    io::File file = io::File::create(path(name));
    file.create_dataset("x", DType::u8, {2, 5, 7});
    file.create_dataset("y", DType::u8, {2});
    file.set("/", "layout", layout);
    file.set("/", "scale", scale);
    file.close();
    return path(name);
  };
  const auto a = write("a.h5", "channels_first", 0.5), b = write("b.h5", "channels_last", 0.5);
  const auto c = write("c.h5", "channels_first", 0.25);
  const auto in = make_importer(files({a}));
  EXPECT_EQ(in->sample(), (Shape{5, 7}));
  EXPECT_TRUE(in->channels_first());
  EXPECT_EQ(in->scale(), 0.5);
  expect_refusal(files({a, b}), {"b.h5", "a.h5", "layout"});
  expect_refusal(files({a, c}), {"c.h5", "a.h5", "scale"});
  io::File file = io::File::create(path("d.h5"));
  file.create_dataset("x", DType::u8, {2, 5, 7});
  file.create_dataset("y", DType::u8, {2});
  file.set("x", "scale_factor", std::string("0.5"));
  file.close();
  expect_refusal(files({path("d.h5")}), {"d.h5", "scale_factor", "not one finite number other than 0"});
}

TEST_F(ImportersEdges, Int64SamplesBecomeInt32OrAreRefused) {
  const auto words = [](std::vector<std::int64_t> v) {
    return std::string(reinterpret_cast<const char*>(v.data()), v.size() * 8);
  };
  const std::string y = put("y.npy", npy("<i8", "(2,)", words({0, 1})));
  const auto in = make_importer(files({put("x.npy", npy("<i8", "(2, 2)", words({1, -2, 3, 2147483647})))}, {y}));
  EXPECT_EQ(in->x_dtype(), DType::i32);
  EXPECT_EQ(in->y_dtype(), DType::i64);
  const std::int32_t expected[] = {1, -2, 3, 2147483647};
  EXPECT_EQ(first_x(*in, 2), std::string(reinterpret_cast<const char*>(expected), sizeof expected));
  const auto past = make_importer(files({put("past.npy", npy("<i8", "(2, 2)", words({1, 2, 3, -2147483649})))}, {y}));
  try {
    first_x(*past, 2);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    for (const char* word : {"past.npy", "-2147483649", "row 1"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
  expect_refusal(files({path("x.npy")}, {put("hot.npy", npy("|u1", "(2, 3)", "abcdef"))}),
                 {"hot.npy", "3 integers a row"});
}

TEST_F(ImportersEdges, RowsWithoutValuesAreRefused) {
  const std::string y = put("y.npy", npy("|u1", "(2,)", "ab"));
  expect_refusal(files({put("x.npy", npy("|u1", "(2, 0, 3)", ""))}, {y}), {"x.npy", "0x3, which have no values"});
  expect_refusal(files({put("x-idx3-ubyte", idx(8, {2, 28, 0}, ""))}, {y}), {"x-idx3-ubyte", "28x0"});
  const std::string x = put("x2.npy", npy("|u1", "(2, 3)", "abcdef"));
  expect_refusal(files({x}, {put("y2.npy", npy("<f4", "(2, 0)", ""))}), {"y2.npy", "no values"});
  io::File file = io::File::create(path("x.h5"));
  file.create_dataset("x", DType::u8, {2, 0});
  file.create_dataset("y", DType::u8, {2});
  file.close();
  expect_refusal(files({path("x.h5")}), {"x.h5", "no values"});
  test::expect_error(Exit::data, "the rows of 'x' have no values",
                     [&] { index_shards(*solo_world(), {.paths = {path("x.h5")}}); });
}

TEST_F(ImportersEdges, OnlyRegularFilesAreOpened) {
  ::mkfifo(path("pipe.npy").c_str(), 0600);
  fs::create_symlink("/dev/zero", path("zero.csv"));
  expect_refusal(files({path("pipe.npy")}), {"pipe.npy (it is a named pipe, not a file)"});
  expect_refusal(files({path("zero.csv")}), {"zero.csv (it is a device, not a file)"});
  ImportOptions tokens = files({path("pipe.npy")});
  tokens.token_bytes = 1;
  tokens.context = 4;
  expect_refusal(tokens, {"named pipe"});
}

TEST_F(ImportersEdges, MissingDatasetsListTheExistingOnes) {
  {
    io::File file = io::File::create(path("set.h5"));
    file.create_dataset("images", DType::u16, {4, 3, 2});
    file.create_dataset("few", DType::u8, {3});
    file.close();
  }
  ImportOptions o = files({path("set.h5")});
  expect_refusal(o, {"'x'", "/few, /images", "--x-name"});
  o.x_name = "images";
  o.y_name = "few";
  expect_refusal(o, {"set.h5:images has 4 rows", "set.h5:few has 3"});
}

TEST(ImportersReal, FashionMnistIsRead) {
  const std::string data = "/usr/share/datasets/fashion-mnist/t10k-";
  if (!fs::exists(data + "images-idx3-ubyte.gz")) GTEST_SKIP() << "Fashion-MNIST is not installed at " << data;
  const auto in = make_importer(files({data + "images-idx3-ubyte.gz"}, {data + "labels-idx1-ubyte.gz"}));
  ASSERT_EQ(in->rows(), 10000);
  ASSERT_EQ(in->sample(), (Shape{28, 28, 1}));
  std::vector<char> x(10000 * 784), y(10000);
  in->read(0, 10000, x.data(), y.data());
  std::vector<int> counts(10);
  for (const char label : y) ++counts.at(std::size_t(label));
  EXPECT_EQ(counts, std::vector<int>(10, 1000));
}

}  // namespace importer_edges_test
}  // namespace millrace
