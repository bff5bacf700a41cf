// Images are decoded in parts and at reduced sizes, cropped at random, and refused when they are damaged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "data/encoded_set.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"

#if defined(MILLRACE_WITH_JPEG) && defined(MILLRACE_WITH_PNG)
namespace millrace {
namespace encoded_decode_test {

using test::images_of_each_kind;
using test::jpeg;
using test::NamedImage;

int smooth(int y, int x, int c) { return 128 + int(60 * std::sin(0.02 * x + c) + 50 * std::cos(0.03 * y)); }

TEST(Encoded, ARegionHasTheSamePixelsAsTheWholeImage) {
  for (const NamedImage& some : images_of_each_kind())
    for (const int eighths : {8, 4, 2, 1}) {
      const bool is_png = some.bytes[0] != '\xff';
      if (is_png && eighths < 8) continue;
      Image whole, part;
      decode_image(
          some.bytes, some.name,
          [=](std::int64_t h, std::int64_t w) {
            return DecodeRegion{eighths, 0, 0, (h * eighths + 7) / 8, (w * eighths + 7) / 8};
          },
          whole);
      ASSERT_EQ(whole.height, whole.whole_height);
      for (std::uint64_t i = 0; i < 60; ++i) {
        const Random4 r = philox(7, std::uint64_t(eighths), i);
        DecodeRegion cut{eighths, uniform_below(r.v[0], std::uint32_t(whole.height)),
                         uniform_below(r.v[1], std::uint32_t(whole.width)), 0, 0};
        cut.height = 1 + uniform_below(r.v[2], std::uint32_t(whole.height - cut.top));
        cut.width = 1 + uniform_below(r.v[3], std::uint32_t(whole.width - cut.left));
        cut.to_end = i % 2;
        decode_image(
            some.bytes, some.name, [&](std::int64_t, std::int64_t) { return cut; }, part);
        ASSERT_TRUE(part.top <= cut.top && part.left <= cut.left && part.top + part.height >= cut.top + cut.height &&
                    part.left + part.width >= cut.left + cut.width);
        for (std::int64_t y = cut.top; y < cut.top + cut.height; ++y)
          for (std::int64_t x = cut.left; x < cut.left + cut.width; ++x)
            for (std::int64_t c = 0; c < 3; ++c)
              ASSERT_EQ(part.pixels[std::size_t(((y - part.top) * part.width + x - part.left) * 3 + c)],
                        whole.pixels[std::size_t((y * whole.width + x) * 3 + c)])
                  << some.name << " " << eighths << "/8, cut from " << cut.top << ", " << cut.left << " of "
                  << cut.height << "x" << cut.width << " at " << y << ", " << x;
      }
    }
}

// Reference implementation in double precision, one new pixel after the other.
double filtered(const Image& in, const ResampleGrid& view, std::int64_t i, std::int64_t j, std::int64_t c) {
  const auto weight = [](const ResampleAxis& axis, std::int64_t i, std::int64_t old) {
    const double distance = (double(old) + 0.5 - (axis.first + double(i) + 0.5) * axis.step) / std::max(1.0, axis.step);
    return std::max(0.0, 1 - std::abs(distance));
  };
  double sum = 0, weights = 0;
  for (std::int64_t y = 0; y < in.height; ++y) {
    const double down = weight(view.down, i, y);
    for (std::int64_t x = 0; down > 0 && x < in.width; ++x)
      if (const double w = down * weight(view.across, j, x); w > 0) {
        sum += w * in.pixels[std::size_t((y * in.width + x) * 3 + c)];
        weights += w;
      }
  }
  return sum / weights;
}

// Without reduction, only the rounding to float and to a byte differs. A pixel that the decoder reduced to a half,
// quarter or eighth is a sharper mean than that of the triangle filter: 2 levels of difference in a smooth image.
TEST(Encoded, SamplesAreTheResampledImage) {
  const ResampleGrid enlarged{{20, 0.7, 30.25}, {24, 0.9, 11.5}}, shrunk{{20, 1.9, 3.25}, {24, 1.7, 2.5}},
      plain{{20, 1, 3}, {24, 1, 90}}, tiny{{9, 9.2, 0.5}, {11, 9.4, 0.25}};
  for (const NamedImage& some : images_of_each_kind())
    for (const ResampleGrid& view : {enlarged, shrunk, plain, tiny})
      for (const DecodeExtent how : {DecodeExtent::checked, DecodeExtent::needed}) {
        const bool reduced = how == DecodeExtent::needed && some.bytes[0] == '\xff' && view.down.step >= 2;
        const NamedImage same_smooth{"4:2:0, smooth", jpeg(93, 121, 3, smooth, {false, 95})};
        const std::string& bytes = reduced ? same_smooth.bytes : some.bytes;
        Image whole, scratch;
        decode_image(bytes, some.name, full_region, whole);
        std::vector<std::uint8_t> got(std::size_t(view.down.count * view.across.count * 3));
        decode_and_resample(
            bytes, some.name, [&](std::int64_t, std::int64_t) { return view; }, how, scratch, got.data());
        if (!reduced) {
          std::vector<std::uint8_t> other(got.size());
          const auto the_view = [&](std::int64_t, std::int64_t) { return view; };
          decode_and_resample(bytes, some.name, the_view, DecodeExtent::plain, scratch, other.data());
          ASSERT_EQ(got, other) << some.name;
        }
        for (std::int64_t i = 0, at = 0; i < view.down.count; ++i)
          for (std::int64_t j = 0; j < view.across.count; ++j)
            for (std::int64_t c = 0; c < 3; ++c, ++at)
              ASSERT_NEAR(got[std::size_t(at)], filtered(whole, view, i, j, c), reduced ? 2 : 0.51)
                  << some.name << (reduced ? ", reduced" : "") << " step " << view.down.step << " at " << i << ", "
                  << j;
      }
}

TEST(Encoded, RandomCropsDependOnSeedEpochAndSampleAlone) {
  const ResizeCrop fit = resize_crop_for(0, 32, "", "", 0, 0);
  const DecodeOptions decode{0, 32, 0.2, 5};
  double smallest = 1, largest = 0;
  for (std::int64_t id = 0; id < 2000; ++id) {
    const ResampleGrid v = random_resized_crop_grid(decode, 3, id, fit, 200, 300);
    const double top = v.down.first * v.down.step, height = 32 * v.down.step, left = v.across.first * v.across.step,
                 width = 32 * v.across.step, share = height * width / 60000;
    ASSERT_TRUE(top >= 0 && left >= 0 && top + height <= 200.001 && left + width <= 300.001) << id;
    ASSERT_TRUE(height / width < 4 / 2.999 && width / height < 4 / 2.999 + 0.17) << height << "x" << width;
    smallest = std::min(smallest, share);
    largest = std::max(largest, share);
  }
  EXPECT_NEAR(smallest, 0.2, 0.01);
  EXPECT_GT(largest, 0.75);  // tall crops do not fit completely
  const auto first = [&](DecodeOptions d, std::uint64_t epoch, std::int64_t id) {
    return random_resized_crop_grid(d, epoch, id, fit, 200, 300).down.first;
  };
  EXPECT_EQ(first(decode, 3, 7), first(decode, 3, 7));
  EXPECT_NE(first(decode, 3, 7), first(decode, 4, 7));
  EXPECT_NE(first(decode, 3, 7), first(decode, 3, 8));
  EXPECT_NE(first(decode, 3, 7), first({0, 32, 0.2, 6}, 3, 7));
}

TEST(Encoded, MutatedImagesAreDecodedOrRefused) {
  std::vector<std::uint8_t> out(16 * 16 * 3);
  Image scratch;
  const ResizeCrop fit = resize_crop_for(16, 16, "", "", 0, 0);
  const auto view = [&](std::int64_t h, std::int64_t w) { return center_crop_grid(fit, h, w, "it"); };
  int refused = 0, tries = 0;
  for (const NamedImage& some : images_of_each_kind())
    for (std::uint64_t i = 0; i < 250; ++i, ++tries) {
      std::string bytes = some.bytes;
      for (std::uint64_t change = 0; change <= i % 4; ++change) {
        const Random4 r = philox(11, i, change);
        // Half of the mutations hit headers. Sizes are not changed: an image of 2^28 pixels is allowed but slow.
        std::size_t at =
            uniform_below(r.v[0], std::uint32_t(i % 2 ? bytes.size() : std::min<std::size_t>(bytes.size(), 700)));
        if (const std::size_t sof = bytes.find(std::string("\xff\xc0", 2)); sof != std::string::npos && at - sof < 9)
          at = sof + 9;
        if (at < 26) at = 26;
        bytes[at] = char(r.v[1]);
        if (r.v[2] % 8 == 0) bytes.resize(at);
      }
      try {
        decode_and_resample(bytes, "it", view, i % 3 ? DecodeExtent::needed : DecodeExtent::checked, scratch,
                            out.data());
      } catch (const Error& e) {
        ASSERT_EQ(int(e.code()), int(Exit::data)) << e.what();
        ASSERT_NE(std::string(e.what()).find("it "), std::string::npos) << e.what();
        ++refused;
      }
    }
  EXPECT_GT(refused, tries / 10);
  EXPECT_LT(refused, tries);
}

}  // namespace encoded_decode_test
}  // namespace millrace
#endif
