// Folders of images by class, written with libpng and libjpeg.
#include <gtest/gtest.h>
#ifdef MILLRACE_WITH_PNG
#include <png.h>
#endif
#ifdef MILLRACE_WITH_JPEG
#include <cstdio>
//
#include <jpeglib.h>
#endif

#include <cmath>
#include <functional>

#include "data/files.hpp"
#include "millrace/data/importer.hpp"
#include "millrace/data/pack.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

using test::Folder;

struct Images : testing::Test {
  Folder folder;
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

using Pixel = std::function<int(int y, int x, int c)>;

TEST_F(Images, WhatAFolderLacksIsSaid) {
  refuses({"holds no folders of images", "/cat/1.jpg"});
  std::filesystem::create_directories(at("cat/none"));
  refuses({"cat holds no .png, .jpg or .jpeg"});
  std::ofstream(at("cat/a.png")) << "GIF89a";
  refuses({"a.png is neither PNG nor JPEG"});
  options.y = {at("cat/a.png")};
  refuses({"leave --y away"}, Exit::config);
  options.y.clear();
  options.layout = Layout::channels_first;
  refuses({"leave --layout away"}, Exit::config);
  options.layout = Layout::automatic;
  options.resize = 8, options.crop = 9;
  refuses({"a crop of 9 pixels does not fit"}, Exit::config);
  options.x = {at("cat/a.png")};
  refuses({"--resize, --crop and --grey are for folders"}, Exit::config);
}

#ifdef MILLRACE_WITH_PNG
void write_png(const std::string& path, int height, int width, int type, const Pixel& pixel, int depth = 8) {
  const int channels = type == PNG_COLOR_TYPE_RGB          ? 3
                       : type == PNG_COLOR_TYPE_RGBA       ? 4
                       : type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                           : 1;
  FILE* file = std::fopen(path.c_str(), "wb");
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_init_io(png, file);
  png_set_IHDR(png, info, png_uint_32(width), png_uint_32(height), depth, type, PNG_INTERLACE_NONE, 0, 0);
  if (type == PNG_COLOR_TYPE_PALETTE) {
    png_color palette[2] = {{10, 20, 30}, {200, 100, 50}};
    png_set_PLTE(png, info, palette, 2);
  }
  png_write_info(png, info);
  for (int y = 0; y < height; ++y) {
    std::vector<std::uint8_t> line;
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) {
        line.push_back(std::uint8_t(pixel(y, x, c)));
        if (depth == 16) line.push_back(0);
      }
    png_write_row(png, line.data());
  }
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  std::fclose(file);
}

TEST_F(Images, PngOfEveryKindByClassInTheOrderOfNames) {
  const Pixel rgb = [](int y, int x, int c) { return 40 * y + 7 * x + c; };
  write_png(at("dog/2.png"), 3, 4, PNG_COLOR_TYPE_RGB, rgb);
  write_png(at("dog/1.PNG"), 3, 4, PNG_COLOR_TYPE_RGBA,
            [&](int y, int x, int c) { return c == 3 ? 9 * x : rgb(y, x, c); });
  write_png(at("cat/a.png"), 3, 4, PNG_COLOR_TYPE_GRAY, [&](int y, int x, int) { return rgb(y, x, 0); });
  write_png(at("cat/b.png"), 3, 4, PNG_COLOR_TYPE_PALETTE, [](int y, int x, int) { return (x + y) % 2; });
  write_png(at("cat/c.png"), 3, 4, PNG_COLOR_TYPE_RGB, rgb, 16);
  std::ofstream(at("cat/.hidden.png")) << "?";
  std::ofstream(at("cat/readme.txt")) << "?";
  const auto in = make_importer(options);
  ASSERT_EQ(in->rows(), 5);
  EXPECT_EQ(in->sample(), (Shape{3, 4, 3}));
  EXPECT_EQ(in->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_NE(in->describe().find("1 other files left out"), std::string::npos) << in->describe();
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

TEST_F(Images, ResizingKeepsRampsAveragesDetailAndCropsTheCentre) {
  const Pixel ramp = [](int y, int x, int c) { return c == 0 ? 2 * x : c == 1 ? 2 * y : 77; };
  write_png(at("a/1.png"), 60, 120, PNG_COLOR_TYPE_RGB, ramp);
  write_png(at("a/2.png"), 120, 60, PNG_COLOR_TYPE_RGB, ramp);
  write_png(at("a/3.png"), 16, 15, PNG_COLOR_TYPE_RGB, ramp);  // enlarged
  write_png(at("a/4.png"), 101, 99, PNG_COLOR_TYPE_GRAY, [](int y, int x, int) { return (x + y) % 2 ? 255 : 0; });
  refuses({"2.png is of 120x60 pixels, the first image of 60x120", "--resize"});
  options.crop = 20;
  refuses({"3.png is of 16x15 pixels, smaller than --crop 20"});
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
  check(0, 2, 20, 5);  // 30 x 60, of which columns 20 to 39
  check(1, 2, 5, 20);
  check(2, 0.5, 5, 6);
  for (const auto v : row(*in, 3)) ASSERT_NEAR(v, 127.5, 14);  // finer than the new pixels: grey, no pattern
  options.crop = 0;
  EXPECT_EQ(make_importer(options)->sample(), (Shape{30, 30, 3}));
}

TEST_F(Images, DamagedPngsAreNamed) {
  write_png(at("a/1.png"), 30, 30, PNG_COLOR_TYPE_RGB, [](int y, int x, int c) { return y * x + c; });
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
#endif

#ifdef MILLRACE_WITH_JPEG
void write_jpeg(const std::string& path, int height, int width, int channels, const Pixel& pixel) {
  FILE* file = std::fopen(path.c_str(), "wb");
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr error;
  jpeg.err = jpeg_std_error(&error);
  jpeg_create_compress(&jpeg);
  jpeg_stdio_dest(&jpeg, file);
  jpeg.image_width = JDIMENSION(width), jpeg.image_height = JDIMENSION(height), jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    std::vector<std::uint8_t> line;
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) line.push_back(std::uint8_t(pixel(int(jpeg.next_scanline), x, c)));
    JSAMPROW at = line.data();
    jpeg_write_scanlines(&jpeg, &at, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::fclose(file);
}

TEST_F(Images, JpegInColourGreyAndInks) {
  const Pixel smooth = [](int y, int x, int c) { return 60 + 3 * y + 2 * x + 10 * c; };
  write_jpeg(at("a/1.jpg"), 24, 32, 3, smooth);
  write_jpeg(at("a/2.jpeg"), 24, 32, 1, smooth);
  write_jpeg(at("b/3.JPG"), 24, 32, 4,
             [&](int y, int x, int c) { return c == 3 ? 204 : smooth(y, x, c); });  // as Adobe: inverted
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

TEST_F(Images, JpegsThatEndTooEarlyAreNotFilledWithGrey) {
  write_jpeg(at("a/1.jpg"), 64, 64, 3, [](int y, int x, int c) { return (y * x * 7 + c * 31) % 256; });
  const std::string good = test::content(at("a/1.jpg"));
  for (const std::size_t length : {good.size() / 8, good.size() / 2, good.size() - 200}) {
    std::ofstream(at("a/1.jpg"), std::ios::binary) << good.substr(0, length);
    refuses({"1.jpg cannot be decoded", "fetch it again"});
  }
}

TEST_F(Images, FlippedBitsInAJpegAreRefusedOrHarmless) {
  write_jpeg(at("a/1.jpg"), 64, 64, 3, [](int y, int x, int c) { return (y * x * 7 + c * 31) % 256; });
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

}  // namespace
}  // namespace millrace
