// Imports folders of images by class, which the test writes with libpng and libjpeg.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/files.hpp"
#include "data/image_files.hpp"
#include "millrace/data/pack/importer.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace images_test {

using test::Pixel;
using test::TemporaryFolder;

struct Images : testing::Test {
  TemporaryFolder folder;
  ImportOptions options;
  void SetUp() override { options.x = {folder.path.string()}; }
  std::string at(const std::string& name) {
    const std::string path = folder / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    return path;
  }
  std::vector<std::uint8_t> row(const Importer& in, std::int64_t number) {
    std::vector<std::uint8_t> x(std::size_t(in.sample().count()));
    std::int32_t y[2] = {-1, -1};
    in.read(number, 1, x.data(), y);
    label = y[0];
    return x;
  }
  void refuses(const std::vector<std::string>& words, Exit code = Exit::data) {
    const std::string message = test::message_of(
        [&] {
          const auto in = make_importer(options);
          for (std::int64_t r = 0; r < in->rows(); ++r) row(*in, r);
        },
        code);
    for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << "\nin: " << message;
  }
  std::int32_t label = -1;
};

TEST_F(Images, ProblemsOfAFolderAreNamed) {
  refuses({"holds no folders of images", "/cat/1.jpg"});
  std::filesystem::create_directories(at("cat/none"));
  refuses({"cat holds no .png, .jpg or .jpeg"});
  std::ofstream(at("cat/a.png")) << "GIF89a";
  refuses({"a.png is neither PNG nor JPEG"});
  options.y = {at("cat/a.png")};
  refuses({"remove --y"}, Exit::config);
  options.y.clear();
  options.layout = Layout::channels_first;
  refuses({"remove --layout"}, Exit::config);
  options.layout = Layout::automatic;
  options.resize = 8;
  options.crop = 9;
  refuses({"a crop of 9 pixels does not fit"}, Exit::config);
  options.x = {at("cat/a.png")};
  refuses({"--resize, --crop, --grey and --upright are for folders"}, Exit::config);
}

#ifdef MILLRACE_WITH_PNG
TEST_F(Images, EveryKindOfPngIsReadByClassInNameOrder) {
  const Pixel rgb = [](int y, int x, int c) { return 40 * y + 7 * x + c; };
  test::write_png(at("dog/2.png"), 3, 4, PNG_COLOR_TYPE_RGB, rgb);
  test::write_png(at("dog/1.PNG"), 3, 4, PNG_COLOR_TYPE_RGBA,
                  [&](int y, int x, int c) { return c == 3 ? 9 * x : rgb(y, x, c); });
  test::write_png(at("cat/a.png"), 3, 4, PNG_COLOR_TYPE_GRAY, [&](int y, int x, int) { return rgb(y, x, 0); });
  test::write_png(at("cat/b.png"), 3, 4, PNG_COLOR_TYPE_PALETTE, [](int y, int x, int) { return (x + y) % 2; });
  test::write_png(at("cat/c.png"), 3, 4, PNG_COLOR_TYPE_RGB, rgb, 16);
  std::ofstream(at("cat/.hidden.png")) << "?";
  std::ofstream(at("cat/readme.txt")) << "?";
  const auto in = make_importer(options);
  ASSERT_EQ(in->rows(), 5);
  EXPECT_EQ(in->sample(), (Shape{3, 4, 3}));
  EXPECT_EQ(in->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_NE(in->describe().find("1 other files ignored"), std::string::npos) << in->describe();
  const auto expect = [&](std::int64_t number, int wanted, const Pixel& pixel) {
    const auto got = row(*in, number);
    EXPECT_EQ(label, wanted);
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 4; ++x)
        for (int c = 0; c < 3; ++c) ASSERT_EQ(int(got[std::size_t((y * 4 + x) * 3 + c)]), pixel(y, x, c)) << number;
  };
  expect(0, 0, [&](int y, int x, int) { return rgb(y, x, 0); });
  const int palette[2][3] = {{10, 20, 30}, {200, 100, 50}};
  expect(1, 0, [&](int y, int x, int c) { return palette[(x + y) % 2][c]; });
  for (const std::int64_t number : {2, 3, 4}) expect(number, number > 2, rgb);
  options.grey = true;
  const auto grey = make_importer(options);
  EXPECT_EQ(grey->sample(), (Shape{3, 4, 1}));
  EXPECT_EQ(int(row(*grey, 1)[1]), (299 * 200 + 587 * 100 + 114 * 50 + 500) / 1000);

  const auto world = solo_world();
  const auto report = pack(*world, *in, {.out = folder.path / "packed"});
  EXPECT_EQ(io::File::open(report.files.at(0)).get_string("/", "class_names"), "cat\ndog");
  EXPECT_EQ(io::File::open(report.files[0]).get_int("/", "classes"), 2);
}

TEST_F(Images, ResizingKeepsRampsAveragesDetailAndCropsCentre) {
  const Pixel ramp = [](int y, int x, int c) { return c == 0 ? 2 * x : c == 1 ? 2 * y : 77; };
  test::write_png(at("a/1.png"), 60, 120, PNG_COLOR_TYPE_RGB, ramp);
  test::write_png(at("a/2.png"), 120, 60, PNG_COLOR_TYPE_RGB, ramp);
  test::write_png(at("a/3.png"), 16, 15, PNG_COLOR_TYPE_RGB, ramp);  // enlarged
  test::write_png(at("a/4.png"), 101, 99, PNG_COLOR_TYPE_GRAY, [](int y, int x, int) { return (x + y) % 2 ? 255 : 0; });
  refuses({"2.png has 120x60 pixels, the first image 60x120", "--resize"});
  options.crop = 20;
  refuses({"3.png has 16x15 pixels, less than --crop 20"});
  options.resize = 30;
  const auto in = make_importer(options);
  EXPECT_EQ(in->sample(), (Shape{20, 20, 3}));
  const auto check = [&](std::int64_t number, double scale, double left, double top) {
    const auto got = row(*in, number);
    for (int y = 0; y < 20; ++y)
      for (int x = 0; x < 20; ++x) {
        const auto* p = &got[std::size_t(3 * (y * 20 + x))];
        ASSERT_NEAR(p[0], 2 * ((x + left + 0.5) * scale - 0.5), 1.01) << number << " " << y << " " << x;
        ASSERT_NEAR(p[1], 2 * ((y + top + 0.5) * scale - 0.5), 1.01) << number << " " << y << " " << x;
        ASSERT_EQ(p[2], 77);
      }
  };
  check(0, 2, 20, 5);  // resized to 30 x 60, cropped to columns 20 to 39
  check(1, 2, 5, 20);
  check(2, 0.5, 5, 6);
  for (const auto v : row(*in, 3)) ASSERT_NEAR(v, 127.5, 14);  // a pattern finer than the new pixels becomes grey
  options.crop = 0;
  EXPECT_EQ(make_importer(options)->sample(), (Shape{30, 30, 3}));
}

TEST_F(Images, DamagedPngsAreNamed) {
  test::write_png(at("a/1.png"), 30, 30, PNG_COLOR_TYPE_RGB, [](int y, int x, int c) { return y * x + c; });
  const std::string good = test::content(at("a/1.png"));
  for (std::size_t length = 8; length < good.size(); length += 7) {
    std::ofstream(at("a/1.png"), std::ios::binary) << good.substr(0, length);
    refuses({"1.png cannot be decoded", "fetch it again"});
  }
  std::string changed = good;
  changed[good.size() / 2] = char(changed[good.size() / 2] ^ 8);
  std::ofstream(at("a/1.png"), std::ios::binary) << changed;
  refuses({"1.png cannot be decoded"});
}

// The most memory that this process has had, in bytes.
std::size_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmPeak:")) return std::stoull(line.substr(7)) << 10;
  return 0;
}

TEST_F(Images, AChunkLengthBeyondTheFileTakesNoMemory) {
  test::write_png(at("a/1.png"), 30, 30, PNG_COLOR_TYPE_RGB, [](int y, int x, int c) { return y * x + c; });
  const std::string good = test::content(at("a/1.png"));
  constexpr std::size_t after_header = 33;  // the signature and the chunk IHDR
  const std::size_t before = peak_bytes();
  for (const char* kind : {"eXIf", "iCCP", "tEXt", "zzZz"}) {
    std::string bytes = good;
    bytes.insert(after_header, std::string("\x7f\xff\xff\xff") + kind + "MM");
    std::ofstream(at("a/1.png"), std::ios::binary) << bytes;
    refuses({"1.png cannot be decoded"});
  }
  EXPECT_LT(peak_bytes() - before, std::size_t(256) << 20);
}
#endif

#ifdef MILLRACE_WITH_JPEG
TEST_F(Images, ColourGreyAndCmykJpegsAreRead) {
  const Pixel smooth = [](int y, int x, int c) { return 60 + 3 * y + 2 * x + 10 * c; };
  test::write_jpeg(at("a/1.jpg"), 24, 32, 3, smooth);
  test::write_jpeg(at("a/2.jpeg"), 24, 32, 1, smooth);
  test::write_jpeg(at("b/3.JPG"), 24, 32, 4, [&](int y, int x, int c) {
    return c == 3 ? 204 : smooth(y, x, c);
  });  // inverted, as Adobe stores them
  const auto in = make_importer(options);
  ASSERT_EQ(in->rows(), 3);
  EXPECT_EQ(in->sample(), (Shape{24, 32, 3}));
  const auto expect = [&](std::int64_t number, const std::function<double(int, int, int)>& value) {
    const auto got = row(*in, number);
    for (int y = 0; y < 24; ++y)
      for (int x = 0; x < 32; ++x)
        for (int c = 0; c < 3; ++c) ASSERT_NEAR(got[std::size_t((y * 32 + x) * 3 + c)], value(y, x, c), 4) << number;
  };
  expect(0, smooth);
  expect(1, [&](int y, int x, int) { return smooth(y, x, 0); });
  expect(2, [&](int y, int x, int c) { return smooth(y, x, c) * 0.8; });
  EXPECT_EQ(label, 1);
}

// The EXIF orientation names the visual sides at which the stored rows and columns begin. The tolerance is needed
// because the compression loss differs between the image and the turned image.
TEST_F(Images, JpegIsTurnedUprightOnRequest) {
  constexpr int height = 30, width = 47;
  const char* const sides[] = {"TL", "TR", "BR", "BL", "LT", "RT", "RB", "LB"};  // of orientation 1, 2, ...
  for (const bool little : {true, false})
    for (int number = 1; number <= 8; ++number) {
      const std::string side = sides[number - 1];
      const bool swapped = number >= 5;
      const auto stored = [&](int row, int column, int c) {
        const int down = side[swapped] == 'B' ? height - 1 - (swapped ? column : row) : (swapped ? column : row),
                  across = side[!swapped] == 'R' ? width - 1 - (swapped ? row : column) : (swapped ? row : column);
        return 3 * down + 2 * across + 20 * c;
      };
      const std::string path = at(fmt::format("a/{}.jpg", number));
      test::write_jpeg(path, swapped ? width : height, swapped ? height : width, 3, stored, {false, 100, 1, 1});
      const auto two = [&](int v) { return little ? std::string{char(v), '\0'} : std::string{'\0', char(v)}; };
      const auto four = [&](int v) { return little ? two(v) + two(0) : two(0) + two(v); };
      const std::string tag = little ? "\x12\x01" : "\x01\x12";
      const std::string exif = std::string("Exif\0\0", 6) + (little ? "II" : "MM") + two(42) + four(8) + two(1) + tag +
                               two(3) + four(1) + two(number) + two(0) + four(0);
      std::string bytes = test::content(path);
      bytes.insert(2, std::string("\xff\xe1\0", 3) + char(exif.size() + 2) + exif);
      std::ofstream(path, std::ios::binary) << bytes;
    }
  struct Size {
    std::int64_t resize, crop, height, width;
  };
  for (const Size& s : {Size{20, 15, 15, 15}, Size{0, 17, 17, 17}, Size{0, 0, height, width}}) {
    options.resize = s.resize;
    options.crop = s.crop;
    options.apply_exif_orientation = true;
    const auto in = make_importer(options);
    ASSERT_EQ(in->sample(), (Shape{s.height, s.width, 3}));
    const auto first = row(*in, 0);
    for (std::int64_t r = 1; r < 8; ++r) {
      const auto turned = row(*in, r);
      for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(turned[i], first[i], 3) << r + 1 << " at " << i;
    }
    options.apply_exif_orientation = false;
    if (s.crop > 0) {
      EXPECT_NE(row(*make_importer(options), 5), row(*in, 5));
    }
  }
}

TEST_F(Images, TruncatedJpegsAreRefused) {
  test::write_jpeg(at("a/1.jpg"), 64, 64, 3, [](int y, int x, int c) { return (y * x * 7 + c * 31) % 256; });
  const std::string good = test::content(at("a/1.jpg"));
  for (const std::size_t length : {good.size() / 8, good.size() / 2, good.size() - 200}) {
    std::ofstream(at("a/1.jpg"), std::ios::binary) << good.substr(0, length);
    refuses({"1.jpg cannot be decoded", "fetch it again"});
  }
}

TEST_F(Images, FlippedBitsInAJpegAreRefusedOrHarmless) {
  test::write_jpeg(at("a/1.jpg"), 64, 64, 3, [](int y, int x, int c) { return (y * x * 7 + c * 31) % 256; });
  const std::string good = test::content(at("a/1.jpg"));
  int refused = 0;
  for (std::size_t i = 3; i < good.size(); i += 11) {
    std::string changed = good;
    changed[i] = char(changed[i] ^ 0x10);
    std::ofstream(at("a/1.jpg"), std::ios::binary) << changed;
    try {
      row(*make_importer(options), 0);
    } catch (const Error& e) {
      EXPECT_EQ(int(e.code()), int(Exit::data)) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
}
#endif

}  // namespace images_test
}  // namespace millrace
