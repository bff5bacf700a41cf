// Images as JPEG and PNG files in memory, and a data set of such files in each storage of the HDF5 files.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "data/files.hpp"
#include "data/image_files.hpp"
#include "millrace/data/decode/image_crops.hpp"
#include "millrace/data/scan/index_shards.hpp"

#if defined(MILLRACE_WITH_JPEG) && defined(MILLRACE_WITH_PNG)
namespace millrace::test {

// Waves and a checkerboard: neighbouring pixels differ everywhere, in every channel.
inline int busy(int y, int x, int c) {
  return 128 + int(60 * std::sin(0.21 * x + c) + 50 * std::cos(0.17 * y)) + (x ^ y) % 8;
}

inline std::string jpeg(int height, int width, int channels, const Pixel& pixel, JpegKind kind = {}) {
  const TemporaryFolder folder;
  write_jpeg(folder / "a.jpg", height, width, channels, pixel, kind);
  return content(folder / "a.jpg");
}
inline std::string png(int height, int width, const Pixel& pixel) {
  const TemporaryFolder folder;
  write_png(folder / "a.png", height, width, PNG_COLOR_TYPE_RGB, pixel);
  return content(folder / "a.png");
}

struct NamedImage {
  const char* name;
  std::string bytes;
};
inline std::vector<NamedImage> images_of_each_kind() {
  return {{"4:2:0", jpeg(93, 121, 3, busy, {false, 90})},
          {"4:4:4", jpeg(93, 121, 3, busy, {false, 90, 1, 1})},
          {"4:2:2", jpeg(93, 121, 3, busy, {false, 90, 2, 1})},
          {"4:2:0, progressive", jpeg(93, 121, 3, busy, {true, 90})},
          {"grey", jpeg(93, 121, 1, busy, {false, 90})},
          {"inks", jpeg(93, 121, 4, busy, {false, 90})},
          {"png", png(93, 121, busy)}};
}

// 23 images of three classes, in files that hold them in different ways.
struct EncodedSet {
  TemporaryFolder folder;
  std::vector<std::string> files;
  std::vector<std::int32_t> labels;
  EncodedSet() {
    for (int i = 0; i < 23; ++i) {
      const Pixel shifted = [i](int y, int x, int c) { return busy(y + 3 * i, x + 5 * i, c); };
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
    write_file(folder / name, {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {all.size()}, all.data(), chunk},
                               {"x_offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, {n + 1}, offsets.data(), offsets_chunk},
                               {"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {n}, labels.data()}});
    return folder / name;
  }
  std::string sequences(const std::string& name, const std::vector<hsize_t>& chunk, hsize_t user_block) const {
    std::vector<hvl_t> x;
    for (const auto& f : files) x.push_back({f.size(), const_cast<char*>(f.data())});
    const hid_t type = H5Tvlen_create(H5T_NATIVE_UINT8);
    const hsize_t n = files.size();
    write_file(folder / name,
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

}  // namespace millrace::test
#endif
