// Imports of .npz, CSV and tokens. The test writes the files byte by byte.
#include <gtest/gtest.h>
#include <zlib.h>

#include "data/files.hpp"
#include "data/pack/npz.hpp"
#include "millrace/base/files.hpp"
#include "millrace/data/pack/importer.hpp"

namespace millrace {
namespace tables_test {

using test::bytes_of;
using test::npy;
using test::npz;
using test::TemporaryFolder;

struct Tables : testing::Test {
  TemporaryFolder folder;
  ImportOptions options;
  std::string put(const std::string& name, const std::string& content) {
    std::ofstream(folder / name, std::ios::binary) << content;
    return folder / name;
  }
  std::unique_ptr<Importer> import(const std::string& path) {
    options.x = {path};
    return make_importer(options);
  }
  // Expects an error whose message contains all the words.
  void refuses(const std::string& path, const std::vector<std::string>& words, Exit code = Exit::data) {
    const std::string message = test::message_of(
        [&] {
          const auto in = import(path);
          std::vector<char> x(std::size_t(in->sample().count()) * 8), y(std::size_t(in->target().count()) * 8);
          for (std::int64_t r = 0; r < in->rows(); ++r) in->read(r, 1, x.data(), y.data());
        },
        code);
    for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << "\nin: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
};

template <class X, class Y>
void expect_rows(const Importer& in, const std::vector<X>& x, const std::vector<Y>& y) {
  ASSERT_EQ(in.rows(), std::int64_t(y.size()) / in.target().count());
  ASSERT_EQ(sizeof(X), size_of(in.x_dtype()));
  ASSERT_EQ(sizeof(Y), size_of(in.y_dtype()));
  std::vector<X> got_x(x.size());
  std::vector<Y> got_y(y.size());
  ASSERT_EQ(std::int64_t(x.size()), in.rows() * in.sample().count());
  in.read(0, in.rows(), got_x.data(), got_y.data());
  EXPECT_EQ(got_x, x);
  EXPECT_EQ(got_y, y);
}

TEST_F(Tables, StoredDeflatedAnd64BitNpzAreRead) {
  std::vector<float> x(6 * 4 * 5);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(i % 17);
  const std::vector<std::int64_t> y{5, 4, 3, 2, 1, 0};
  const std::vector<std::pair<std::string, std::string>> members{{"labels.npy", npy("<i8", "(6,)", bytes_of(y))},
                                                                 {"images.npy", npy("<f4", "(6, 4, 5)", bytes_of(x))}};
  options.x_name = "images";
  options.y_name = "labels";
  for (const bool deflate : {false, true})
    for (const bool wide : {false, true}) {
      const auto in = import(put("a.npz", npz(members, deflate, wide)));
      EXPECT_EQ(in->sample(), (Shape{4, 5, 1}));
      expect_rows(*in, x, y);
    }
  options.y_name = "classes";
  refuses(folder / "a.npz", {"a.npz has no array 'classes'", "labels, images", "--y-name"});
}

TEST_F(Tables, NpzDamagedAtAnyByteIsRefusedOrReadCorrectly) {
  std::vector<std::uint8_t> x(200, 3), y{1, 2};
  x[77] = 9;
  const std::string good =
      npz({{"x.npy", npy("|u1", "(2, 100)", bytes_of(x))}, {"y.npy", npy("|u1", "(2,)", bytes_of(y))}}, true, true);
  const auto read = [&](const std::string& content) {
    try {
      const auto in = import(put("a.npz", content));
      std::vector<std::uint8_t> got_x(200), got_y(2);
      if (in->rows() != 2 || in->sample() != Shape{100} || in->x_dtype() != DType::u8) return false;
      in->read(0, 2, got_x.data(), got_y.data());
      EXPECT_EQ(got_x, x);
      EXPECT_EQ(got_y, y);
      return true;
    } catch (const Error& e) {
      EXPECT_EQ(int(e.code()), int(Exit::data)) << e.what();
      return false;
    }
  };
  ASSERT_TRUE(read(good));
  int caught = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = char(changed[i] ^ 0x55);
    caught += !read(changed);
  }
  EXPECT_GT(caught, int(good.size()) / 2);
  for (std::size_t length = 0; length + 5 < good.size(); length += 3) EXPECT_FALSE(read(good.substr(0, length)));
  const auto plain = [&](unsigned method, unsigned flags) {
    return put("b.npz", npz({{"x.npy", "?"}, {"y.npy", "?"}}, false, false, method, flags));
  };
  refuses(plain(12, 0), {"b.npz", "method 12", "savez"});
  refuses(plain(0, 1), {"b.npz", "encrypted"});
}

TEST_F(Tables, CsvIsReadWithAndWithoutHeader) {
  const std::vector<float> x{1, 2.5f, -3e2f, 4, 5, 6};
  const std::vector<std::int64_t> y{7, 0};
  options.y_name = "class";
  const auto with = import(put("a.csv", "width,class,height,\"depth\"\r\n1,7,2.5,-3e2\r\n\r\n4,0,5,6"));
  EXPECT_EQ(with->sample(), Shape{3});
  expect_rows(*with, x, y);
  options.y_name = "1";
  for (const char* text : {"7;1;2.5;-3e2\n0;4;5;+6\n", "7\t1\t2.5\t-3e2\n0\t4\t5\t6\n",
                           "\xef\xbb\xbf"
                           "7, 1, 2.5, -300\n0, 4, 5, 6\n",
                           "c,b,d,e\n7,1,2.5,-300\n0,4,5,6\n"})
    expect_rows(*import(put("b.csv", text)), x, y);
  options.y_name = "3";
  expect_rows(*import(put("c.csv", "1,2,0.5\n3,4,1.5\n")), std::vector<float>{1, 2, 3, 4},
              std::vector<float>{0.5f, 1.5f});
}

TEST_F(Tables, CsvMayHaveYInAnotherTable) {
  const std::string x = put("x.csv", "1,2,3\n4,5,6\n");
  const std::vector<float> samples{1, 2, 3, 4, 5, 6};
  const auto with = [&](const std::string& y) {
    options.y = {put("y.csv", y)};
    return import(x);
  };
  const auto several = with("a,b\n2,1\n2,3\n");  // whole numbers, but targets: two per row
  EXPECT_EQ(several->target(), Shape{2});
  expect_rows(*several, samples, std::vector<float>{2, 1, 2, 3});
  expect_rows(*with("class\n1\n-1\n"), samples, std::vector<std::int64_t>{1, -1});
  expect_rows(*with("\"x, y\"\n1.5\n2\n"), samples, std::vector<float>{1.5f, 2});
}

TEST_F(Tables, ClassesOfACsvMayBeWords) {
  options.y_name = "kind";
  const auto in = import(put("a.csv", "size,kind\n1,rose\n2,\"iris, blue\"\n3,rose\n"));
  EXPECT_EQ(in->class_names(), (std::vector<std::string>{"iris, blue", "rose"}));
  expect_rows(*in, std::vector<float>{1, 2, 3}, std::vector<std::int64_t>{1, 0, 1});
  options.x = {folder / "a.csv", put("b.csv", "size,kind\n4,rose\n5,tulip\n")};
  EXPECT_NE(test::message_of([&] { make_importer(options); })
                .find("label 0 is 'rose', not 'iris, blue' as in " + (folder / "a.csv") +
                      ". number the classes in the same way"),
            std::string::npos);
  refuses(put("c.csv", "size,kind\n1,rose\n2,3\n"), {"c.csv:3: the number 3 in column 2, where others are words"});
  refuses(put("c.csv", "size,kind\n1,rose\n2,\n"), {"c.csv:3: an empty cell in column 2"});
  refuses(put("c.csv", "size,kind\n1,3\n2,rose\n"), {"c.csv:3: 'rose' in column 'kind' is not a number", "all words"});
  options.targets = true;
  refuses(folder / "a.csv", {"words in column kind", "remove --targets"});
}

TEST_F(Tables, WholeNumbersAreTargetsOnRequest) {
  options.y_name = "2";
  const std::string path = put("a.csv", "1,20\n2,30\n");
  EXPECT_NE(import(path)->describe().find("no header, y are labels"), std::string::npos) << import(path)->describe();
  options.targets = true;
  const auto in = import(path);
  EXPECT_NE(in->describe().find("y are targets"), std::string::npos) << in->describe();
  expect_rows(*in, std::vector<float>{1, 2}, std::vector<float>{20, 30});
  options.y = {put("y.npy", npy("|u1", "(2,)", "ab"))};
  refuses(path, {"--targets is for CSV"}, Exit::config);
}

TEST_F(Tables, AFirstLineIsAHeaderOnlyWhenItLooksLikeNames) {
  options.y_name = "1";
  const auto header = [&](const std::string& first) { return import(put("a.csv", first + "\n1,2,3\n"))->rows() == 1; };
  for (const char* names : {"label,0,1", "a,b,c", ",0,1", "1x1,1x2,1x3", "\"1, 2\",b,c"})
    EXPECT_TRUE(header(names)) << names;
  for (const char* values : {"1,2,3", "1,-2,3", "1e3,2,3", "+1,.5,3"}) EXPECT_FALSE(header(values)) << values;
  // A row with a missing or misspelt value is not a header.
  refuses(put("a.csv", "1,2.5,?\n1,2,3\n"), {"a.csv:1: '?' in column 3 is not a number"});
  refuses(put("a.csv", "1,2,nan\n1,2,3\n"), {"a.csv:1: 'nan' in column 3"});
  EXPECT_NE(import(put("a.csv", "label,0,1\n1,2,3\n"))->describe().find("columns label, 0, 1"), std::string::npos);
}

TEST_F(Tables, TablesWithOtherColumnsAreRefused) {
  options.y_name = "c";
  options.x = {put("a.csv", "a,b,c\n1,2,0\n"), put("b.csv", "b,a,c\n1,2,0\n")};
  const std::string message = test::message_of([&] { make_importer(options); });
  EXPECT_NE(message.find("b.csv has columns b, a, c; "), std::string::npos) << message;
}

TEST_F(Tables, GzippedCsvIsRead) {
  const std::string path = folder / "a.csv.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  gzputs(file, "1,2\n3,4\n");
  gzclose(file);
  options.y_name = "2";
  expect_rows(*import(path), std::vector<float>{1, 3}, std::vector<std::int64_t>{2, 4});
}

TEST_F(Tables, CsvErrorsNameLineAndColumn) {
  const std::string place = folder / "a.csv";
  const auto table = [&](const std::string& text, const std::string& label) {
    options.y_name = label;
    return put("a.csv", text);
  };
  refuses(put("wide.csv", std::string("1\0,\0002\0\n\0", 8)), {"wide.csv:1: a byte of value 0", "as UTF-8"});
  refuses(table("2,1\ncat,3\n", "2"), {place + ":2: 'cat' in column 1 is not a number", "give words numbers"});
  refuses(table("a,b\n2,1\ncat,3\n", "b"), {place + ":3: 'cat' in column 'a' is not a number"});
  refuses(table("1,2\n3,cat\n", "2"), {":2: 'cat' in column 2 is not a number", "all numbers or all words"});
  refuses(table("1,2\n3,\n", "2"), {":2: the cell in column 2 is empty"});
  refuses(table("1,2\n3,nan\n", "2"), {":2: 'nan'"});
  refuses(table("1,2\n1e300,2\n", "2"), {":2: 1e300 in column 1 is too large"});
  refuses(table("1,2\n\"1,2\n", "2"), {":2: a quote is not closed"});
  refuses(table("a,b\n1,2\n\n3\n", "b"), {":4: 1 fields, the first line has 2"});
  refuses(table("a,b\n1,2\n", "y"), {"no column 'y'", "(a, b)", "--y-name"});
  refuses(table("b,b\n1,2\n", "b"), {"2 columns 'b'", "its number"});
  refuses(table("1,2\n", "y"), {"no column 'y'", "2 without names", "from 1"});
  refuses(table("1,2\n", "3"), {"no column '3'"});
  refuses(table("a,b\n", "b"), {"no rows"});
  refuses(table("1\n2\n", "1"), {"one column"});
}

TEST_F(Tables, TokensAreWindowsThatOverlapByOne) {
  options.context = 3;
  options.token_bytes = 2;
  std::vector<std::uint16_t> tokens(12);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = std::uint16_t(60000 + i);
  const auto in = import(put("a.bin", bytes_of(tokens)));
  EXPECT_EQ(in->sample(), Shape{4});
  EXPECT_NE(in->describe().find("12 tokens"), std::string::npos) << in->describe();
  EXPECT_NE(in->describe().find("2 left"), std::string::npos) << in->describe();
  expect_rows(
      *in,
      std::vector<std::uint16_t>{60000, 60001, 60002, 60003, 60003, 60004, 60005, 60006, 60006, 60007, 60008, 60009},
      std::vector<std::int32_t>{-1, -1, -1});
  options.token_bytes = 4;
  expect_rows(*import(put("b.bin", bytes_of(std::vector<std::uint32_t>{1, 2, 3, 2147483647}))),
              std::vector<std::int32_t>{1, 2, 3, 2147483647}, std::vector<std::int32_t>{-1});
  refuses(put("c.bin", bytes_of(std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 3000000000u})),
          {"c.bin", "3000000000 at 6"});
  refuses(put("d.bin", "12345"), {"d.bin", "5 bytes", "--tokens"});
  refuses(put("e.bin", "123412341234"), {"e.bin", "3 tokens", "lower --context"});
}

TEST_F(Tables, TextIsReadAsBytesFileByFile) {
  options.context = 4;
  options.token_bytes = 1;
  const std::string first = put("a.txt", "to be, or not"), none = put("b.txt", "abc"),
                    last = put("c.txt", "\xc3\xa9t\xc3\xa9!");
  options.x = {first, none, last};
  const auto in = make_importer(options);
  std::string expected =
      "to be"
      "e, or"
      "r not"
      "\xc3\xa9t\xc3\xa9";
  expect_rows(*in, std::vector<std::uint8_t>(expected.begin(), expected.end()), std::vector<std::int32_t>(4, -1));
  options.context = 0;
  refuses(first, {"--context"}, Exit::config);
  options.context = 4;
  refuses(folder.path.string(), {"it is a folder, not a file"});
  options.resize = 3;
  refuses(first, {"--resize, --crop, --grey and --upright are for images"}, Exit::config);
  options.token_bytes = 0;
  options.resize = 0;
  refuses(first, {"--tokens"}, Exit::config);
}

}  // namespace tables_test
}  // namespace millrace
