// Samples that are JPEG or PNG files, from the HDF5 file to the loader's slot.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "data/files.hpp"
#include "data/image_files.hpp"
#include "millrace/data/decode/image_crops.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"
#include "support/host_device.hpp"

#if defined(MILLRACE_WITH_JPEG) && defined(MILLRACE_WITH_PNG)
namespace millrace {
namespace {

using test::JpegKind;
using test::message_of;
using test::TemporaryFolder;

// Waves and a checkerboard: neighbouring pixels differ everywhere, in every channel.
int busy(int y, int x, int c) { return 128 + int(60 * std::sin(0.21 * x + c) + 50 * std::cos(0.17 * y)) + (x ^ y) % 8; }
int smooth(int y, int x, int c) { return 128 + int(60 * std::sin(0.02 * x + c) + 50 * std::cos(0.03 * y)); }

std::string jpeg(int height, int width, int channels, const test::Pixel& pixel, JpegKind kind = {}) {
  const TemporaryFolder folder;
  test::write_jpeg(folder / "a.jpg", height, width, channels, pixel, kind);
  return test::content(folder / "a.jpg");
}
std::string png(int height, int width, const test::Pixel& pixel) {
  const TemporaryFolder folder;
  test::write_png(folder / "a.png", height, width, PNG_COLOR_TYPE_RGB, pixel);
  return test::content(folder / "a.png");
}

struct Some {
  const char* name;
  std::string bytes;
};
std::vector<Some> some_of_each_kind() {
  return {{"4:2:0", jpeg(93, 121, 3, busy, {false, 90})},
          {"4:4:4", jpeg(93, 121, 3, busy, {false, 90, 1, 1})},
          {"4:2:2", jpeg(93, 121, 3, busy, {false, 90, 2, 1})},
          {"4:2:0, progressive", jpeg(93, 121, 3, busy, {true, 90})},
          {"grey", jpeg(93, 121, 1, busy, {false, 90})},
          {"inks", jpeg(93, 121, 4, busy, {false, 90})},
          {"png", png(93, 121, busy)}};
}

TEST(Encoded, ARegionHasTheSamePixelsAsTheWholeImage) {
  for (const Some& some : some_of_each_kind())
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
  for (const Some& some : some_of_each_kind())
    for (const ResampleGrid& view : {enlarged, shrunk, plain, tiny})
      for (const DecodeExtent how : {DecodeExtent::checked, DecodeExtent::needed}) {
        const bool reduced = how == DecodeExtent::needed && some.bytes[0] == '\xff' && view.down.step >= 2;
        const Some same_smooth{"4:2:0, smooth", jpeg(93, 121, 3, smooth, {false, 95})};
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

struct Set {
  TemporaryFolder folder;
  std::vector<std::string> files;
  std::vector<std::int32_t> labels;
  Set() {
    for (int i = 0; i < 23; ++i) {
      const test::Pixel shifted = [i](int y, int x, int c) { return busy(y + 3 * i, x + 5 * i, c); };
      files.push_back(i % 4 == 3 ? png(70 + i, 90, shifted) : jpeg(60 + i, 80 + 2 * i, 3, shifted, {i % 5 == 1, 90}));
      labels.push_back(i % 3);
    }
  }
  std::string blob(const std::string& name = "blob.h5", const std::vector<hsize_t>& chunk = {},
                   std::int64_t last_end = -1, const std::vector<hsize_t>& offsets_chunk = {}) const {
    std::string all;
    std::vector<std::int64_t> offsets{0};
    for (const auto& f : files) {
      all += f;
      offsets.push_back(std::int64_t(all.size()));
    }
    if (last_end >= 0) offsets.back() = last_end;
    const hsize_t n = files.size();
    test::write_file(folder / name,
                     {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {all.size()}, all.data(), chunk},
                      {"x_offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, {n + 1}, offsets.data(), offsets_chunk},
                      {"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {n}, labels.data()}});
    return folder / name;
  }
  std::string sequences(const std::string& name, const std::vector<hsize_t>& chunk, hsize_t user_block) const {
    std::vector<hvl_t> x;
    for (const auto& f : files) x.push_back({f.size(), const_cast<char*>(f.data())});
    const hid_t type = H5Tvlen_create(H5T_NATIVE_UINT8);
    const hsize_t n = files.size();
    test::write_file(
        folder / name,
        {{"x", type, type, {n}, x.data(), chunk}, {"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {n}, labels.data()}},
        user_block);
    H5Tclose(type);
    return folder / name;
  }
  ShardIndex index(const std::vector<std::string>& paths, double min_area = 0) const {
    const auto world = solo_world();
    ShardIndex d = index_shards(*world, {.paths = paths, .decode = {40, 32, 0, 0}});
    d.decode.min_area = min_area;
    d.decode.seed = 9;
    return d;
  }
  std::vector<std::uint8_t> expected(const ShardIndex& d, std::int64_t epoch, std::int64_t id) const {
    const ResizeCrop fit = resize_crop_for(40, 32, "", "", 0, 0);
    std::vector<std::uint8_t> out(32 * 32 * 3);
    Image scratch;
    decode_and_resample(
        files[std::size_t(id)], "",
        [&](std::int64_t h, std::int64_t w) {
          return d.decode.min_area > 0 ? random_resized_crop_grid(d.decode, std::uint64_t(epoch), id, fit, h, w)
                                       : center_crop_grid(fit, h, w, "");
        },
        DecodeExtent::needed, scratch, out.data());
    return out;
  }
};

TEST(Encoded, EveryStorageAndAnyWorkersGiveTheSameSamples) {
  const Set set;
  const auto world = solo_world();
  for (const std::string& path : {set.blob(), set.blob("listed.h5", {}, -1, {5}), set.sequences("plain.h5", {}, 0),
                                  set.sequences("block.h5", {}, 1024), set.sequences("chunked.h5", {5}, 512)})
    for (const double min_area : {0.0, 0.3})
      for (const int workers : {0, 1, 3}) {
        const ShardIndex d = set.index({path}, min_area);
        ASSERT_EQ(d.sample, (Shape{32, 32, 3})) << path;
        test::HostDevice device;
        const auto source = make_source(*world, d, Reader::automatic);
        const Sampler sampler(23, 8, 8, 5, true);
        std::int64_t epoch = 0, step = 0, rows = 0;
        Loader loader(device, *source, d, sampler, {workers, 3, 8}, [&]() -> std::optional<MicroBatch> {
          if (step == 3) {
            ++epoch;
            step = 0;
          }
          if (epoch == 2) return std::nullopt;
          const std::int64_t first = 8 * step;
          return MicroBatch{epoch, step++, first, std::min<std::int64_t>(8, 23 - first)};
        });
        while (const Batch* b = loader.next()) {
          std::vector<std::int64_t> ids(std::size_t(b->item.rows));
          sampler.ids(b->item, ids.data());
          for (std::size_t r = 0; r < ids.size(); ++r, ++rows) {
            const auto want = set.expected(d, b->item.epoch, ids[r]);
            ASSERT_EQ(std::memcmp(want.data(), static_cast<const char*>(b->x.data) + r * want.size(), want.size()), 0)
                << path << ", crops of at least " << min_area << ", " << workers << " workers, sample " << ids[r];
            ASSERT_EQ(static_cast<const std::int32_t*>(b->y.data)[r], set.labels[std::size_t(ids[r])]);
          }
        }
        EXPECT_EQ(rows, 46);
      }
}

// The memory per file does not depend on the number of images, unless their locations are stored in chunks.
TEST(Encoded, LocationsAreReadWithTheImages) {
  const Set set;
  using Locator = EncodedRows::Locator;
  const auto told = [&](const std::string& path) { return set.index({path}).shards.front().x_encoded; };
  EXPECT_EQ(told(set.blob())->locator, Locator::offsets);
  EXPECT_EQ(told(set.sequences("plain.h5", {}, 0))->locator, Locator::references);
  EXPECT_EQ(told(set.blob())->list, nullptr);
  EXPECT_EQ(told(set.blob("listed.h5", {}, -1, {5}))->list->size(), 23u);
  EXPECT_EQ(told(set.sequences("chunked.h5", {5}, 512))->list->size(), 23u);
  // Descending offsets only affect the images between them.
  std::string path = set.blob("descend.h5"), bytes = test::content(path);
  const std::int64_t third = std::int64_t(set.files[0].size() + set.files[1].size() + set.files[2].size()), zero = 0;
  const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&third), 8));
  ASSERT_LT(at, bytes.size());
  std::memcpy(&bytes[at], &zero, 8);
  std::ofstream(path, std::ios::binary) << bytes;
  const auto world = solo_world();
  const auto source = make_source(*world, set.index({path}), Reader::automatic);
  std::vector<char> x(32 * 32 * 3);
  std::int32_t y;
  const auto read = [&](std::int64_t id) { source->read({&id, 1}, x.data(), &y); };
  EXPECT_NO_THROW(read(1));
  EXPECT_NE(message_of([&] { read(2); }).find("x_offsets': image 2 spans bytes"), std::string::npos);
  EXPECT_NO_THROW(read(4));
}

TEST(Encoded, DamageIsReportedWithFileAndImage) {
  Set set;
  const auto world = solo_world();
  const auto reading = [&](std::int64_t id) {
    const auto source = make_source(*world, set.index({set.blob()}), Reader::automatic);
    std::vector<char> x(32 * 32 * 3);
    std::int32_t y;
    source->read({&id, 1}, x.data(), &y);
  };
  const auto expect = [&](const std::string& message, std::vector<std::string> words) {
    for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  const std::string good = set.files[2];
  set.files[2] = good.substr(0, good.size() / 2);
  expect(message_of([&] { reading(2); }), {"image 2 of ", "blob.h5 (sample 2) cannot be decoded ("});
  set.files[2] = "GIF89a";
  expect(message_of([&] { reading(2); }), {"image 2 of ", "is neither PNG nor JPEG"});
  set.files[2] = "";
  expect(message_of([&] { reading(2); }), {"is neither PNG nor JPEG"});
  set.files[2] = good;
  const std::string path = set.blob();
  expect(message_of([&] { make_source(*world, set.index({path}), Reader::mmap); }, Exit::config),
         {"data.reader = mmap reads samples of one size", "use auto or direct"});
  expect(message_of(
             [&] {
               index_shards(*world, {.paths = {path}, .layout = Layout::channels_first, .decode = {40, 32, 0, 0}});
             },
             Exit::config),
         {"data.layout", "encoded images"});
  expect(message_of([&] { set.index({set.blob("end.h5", {}, 1 << 30)}); }), {"x_offsets': image 22 spans bytes"});
  expect(message_of([&] { set.index({set.blob("chunked.h5", {1000})}); }), {"'/x' holds encoded images, but is not"});
  const std::string sequences = set.sequences("v.h5", {}, 0);
  std::string bytes = test::content(sequences);
  for (std::size_t at; (at = bytes.find("GCOL")) != std::string::npos;) bytes[at] = 'g';
  std::ofstream(sequences, std::ios::binary) << bytes;
  const auto broken = make_source(*world, set.index({sequences}), Reader::automatic);
  std::vector<char> x(32 * 32 * 3);
  std::int32_t y;
  const std::int64_t id = 4;
  expect(message_of([&] { broken->read({&id, 1}, x.data(), &y); }), {"image 4 of ", "no heap collection at byte"});
  // An image whose end overflows to the beginning of the file.
  const std::string far = set.sequences("far.h5", {}, 0);
  bytes = test::content(far);
  std::uint32_t count = std::uint32_t(set.files[4].size());
  std::uint64_t collection = 0;
  std::size_t at = 0;
  do {  // its reference: size, collection, object number
    at = bytes.find(std::string(reinterpret_cast<const char*>(&count), 4), at + 1);
    ASSERT_LT(at, bytes.size() - 16);
    std::memcpy(&collection, &bytes[at + 4], 8);
  } while (collection >= bytes.size() || bytes.compare(collection, 4, "GCOL") != 0);
  collection = ~std::uint64_t(0) - count / 2;
  std::memcpy(&bytes[at + 4], &collection, 8);
  std::ofstream(far, std::ios::binary) << bytes;
  const auto wrapped = make_source(*world, set.index({far}), Reader::automatic);
  expect(message_of([&] {
           wrapped->read({&id, 1}, x.data(), &y);
         }),
         {"far.h5:", "image 4 would be at byte 18446744073709", "damaged"});
}

TEST(Encoded, MutatedImagesAreDecodedOrRefused) {
  std::vector<std::uint8_t> out(16 * 16 * 3);
  Image scratch;
  const ResizeCrop fit = resize_crop_for(16, 16, "", "", 0, 0);
  const auto view = [&](std::int64_t h, std::int64_t w) { return center_crop_grid(fit, h, w, "it"); };
  int refused = 0, tries = 0;
  for (const Some& some : some_of_each_kind())
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

void write_photos(const Set& set) {
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    const std::string name = cat("photos/", char('a' + set.labels[i]), "/", i, i % 4 == 3 ? ".png" : ".jpg");
    std::filesystem::create_directories(std::filesystem::path(set.folder / name).parent_path());
    std::ofstream(set.folder / name, std::ios::binary) << set.files[i];
  }
}

// Images that are packed as files and then as pixels give the same shards as images that are packed as pixels directly.
TEST(Encoded, EncodedShardsCanBePackedAsPixels) {
  const Set set;
  const auto world = solo_world();
  write_photos(set);
  PackOptions options{.out = set.folder.path / "kept"};
  options.shuffle = false;
  options.valid_fraction = 0;
  options.shard_bytes = 30000;
  pack_encoded(*world, set.folder / "photos", options);
  ImportOptions folder, shards;
  folder.x = {set.folder / "photos"};
  shards.x = {set.folder / "kept/train-*.h5"};
  for (ImportOptions* o : {&folder, &shards}) {
    o->resize = 24;
    o->crop = 20;
    o->grey = true;
  }
  const auto expected = make_importer(folder), found = make_importer(shards);
  ASSERT_EQ(found->rows(), expected->rows());
  EXPECT_EQ(found->sample(), (Shape{20, 20, 1}));
  EXPECT_EQ(found->class_names(), expected->class_names());
  EXPECT_GT(std::distance(std::filesystem::directory_iterator(set.folder.path / "kept"), {}), 1);
  const auto rows_of = [](const Importer& in) {
    std::vector<std::uint8_t> x(std::size_t(in.rows() * in.sample().count()));
    std::vector<std::int32_t> y(std::size_t(in.rows()));
    in.read(0, in.rows(), x.data(), y.data());
    return std::pair(x, y);
  };
  EXPECT_EQ(rows_of(*found), rows_of(*expected));
  shards.layout = Layout::channels_first;
  EXPECT_NE(message_of([&] { make_importer(shards); }, Exit::config).find("remove --layout"), std::string::npos);
}

TEST(Encoded, PackKeepsEveryImageOnceWithItsBytesAndLabel) {
  const Set set;
  const auto world = solo_world();
  write_photos(set);
  PackOptions options{.out = set.folder.path / "packed"};
  options.shard_bytes = 30000;
  options.valid_fraction = 0.2;
  const PackReport report = pack_encoded(*world, set.folder / "photos", options);
  EXPECT_EQ(report.rows, 18);
  EXPECT_EQ(report.valid_rows, 5);
  EXPECT_GT(report.files.size(), 3u);
  std::vector<int> found(set.files.size(), 0);
  for (const std::string& path : report.files) {
    const io::File file = io::File::open(path);
    EXPECT_EQ(file.get_string("/", "class_names"), "a\nb\nc");
    const std::int64_t rows = file.info("y").shape[0];
    std::vector<std::int64_t> offsets(std::size_t(rows) + 1);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(rows));
    std::string x(std::size_t(file.info("x").shape[0]), '\0');
    file.read_rows("x_offsets", 0, rows + 1, DType::i64, offsets.data());
    file.read_rows("y", 0, rows, DType::i32, labels.data());
    file.read_rows("x", 0, std::int64_t(x.size()), DType::u8, x.data());
    ASSERT_EQ(offsets.back(), std::int64_t(x.size()));
    for (std::size_t r = 0; r < labels.size(); ++r) {
      const std::string bytes = x.substr(std::size_t(offsets[r]), std::size_t(offsets[r + 1] - offsets[r]));
      const auto at = std::find(set.files.begin(), set.files.end(), bytes) - set.files.begin();
      ASSERT_LT(at, 23);
      ++found[std::size_t(at)];
      EXPECT_EQ(labels[r], set.labels[std::size_t(at)]);
    }
  }
  EXPECT_EQ(found, std::vector<int>(23, 1));
  EXPECT_EQ(set.index({set.folder / "packed/train-*.h5"}).rows, 18);
  std::ofstream(set.folder / "photos/a/0.jpg") << "?";
  options.overwrite = true;
  const std::string message = message_of([&] { pack_encoded(*world, set.folder / "photos", options); });
  EXPECT_NE(message.find("photos/a/0.jpg is neither PNG nor JPEG"), std::string::npos) << message;
}

}  // namespace
}  // namespace millrace
#endif
