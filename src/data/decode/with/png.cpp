// Decodes PNG with libpng, which reports errors with longjmp. No object with a destructor is created between setjmp and
// the jump.
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/data/decode/image.hpp"

namespace millrace {
namespace {

struct PngInput {
  std::string_view content;
  std::size_t at = 0;
  char problem[200] = "";
};

void read_bytes(png_structp png, png_bytep to, png_size_t bytes) {
  auto& from = *static_cast<PngInput*>(png_get_io_ptr(png));
  if (from.content.size() - from.at < bytes) png_error(png, "it is cut off");
  std::memcpy(to, from.content.data() + from.at, bytes);
  from.at += bytes;
}

void on_error(png_structp png, png_const_charp text) {
  auto& from = *static_cast<PngInput*>(png_get_error_ptr(png));
  std::strncpy(from.problem, text, sizeof from.problem - 1);
  png_longjmp(png, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

// libpng allocates the length that a chunk states, up to 2 GiB, before it reads the chunk. Chunks of pixels are read
// piece by piece, so those may be cut off.
bool chunks_fit(std::string_view content) {
  constexpr std::size_t signature = 8, head = 8, checksum = 4;  // a chunk: length (4 bytes), type (4), data, checksum
  const auto byte = [&](std::size_t i) { return std::size_t(std::uint8_t(content[i])); };
  for (std::size_t at = signature; at + head <= content.size();) {
    const std::size_t length = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    const std::string_view type = content.substr(at + 4, 4);
    if (type == "IEND") break;
    if (length > content.size() - at - head) return type == "IDAT";
    at += head + length + checksum;
  }
  return true;
}

struct Decoder {
  PngInput input;
  png_structp png;
  png_infop info;
  std::vector<png_bytep> rows;        // pointers to the rows of the region
  std::vector<std::uint8_t> skipped;  // memory for rows outside of the region
  explicit Decoder(std::string_view content)
      : input{content},
        png(png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, on_error, ignore_warning)),
        info(png ? png_create_info_struct(png) : nullptr) {}
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

// On failure, returns false and sets input.problem.
bool read_header(Decoder& d, Image& out) {
  if (setjmp(png_jmpbuf(d.png))) return false;
  png_set_read_fn(d.png, &d.input, read_bytes);
  png_read_info(d.png, d.info);
  out.whole_height = png_get_image_height(d.png, d.info);
  out.whole_width = png_get_image_width(d.png, d.info);
  if (out.whole_height * out.whole_width > max_image_pixels) png_error(d.png, "more than 2^28 pixels");
  return true;
}

// Decodes whole rows. Of an interlaced image it decodes all, because each pass contains pixels of every row.
bool read_pixels(Decoder& d, const DecodeRegion& region, Image& out) {
  if (setjmp(png_jmpbuf(d.png))) return false;
  png_set_expand(d.png);
  png_set_strip_16(d.png);
  png_set_strip_alpha(d.png);
  png_set_gray_to_rgb(d.png);
  const bool interlaced = png_set_interlace_handling(d.png) > 1;
  png_read_update_info(d.png, d.info);
  out.left = 0;
  out.width = out.whole_width;
  out.top = interlaced ? 0 : region.top;
  out.height = interlaced ? out.whole_height : region.height;
  const std::size_t row_bytes = png_get_rowbytes(d.png, d.info);
  if (row_bytes != 3 * std::size_t(out.width)) png_error(d.png, "unsupported kind of image");
  out.pixels.resize(row_bytes * std::size_t(out.height));
  d.rows.resize(std::size_t(out.height));
  d.skipped.resize(row_bytes);
  for (std::size_t y = 0; y < d.rows.size(); ++y) d.rows[y] = out.pixels.data() + y * row_bytes;
  if (interlaced) {
    png_read_image(d.png, d.rows.data());
  } else {
    for (std::int64_t y = 0; y < out.top; ++y) png_read_row(d.png, d.skipped.data(), nullptr);
    png_read_rows(d.png, d.rows.data(), nullptr, png_uint_32(out.height));
  }
  std::int64_t read = out.top + out.height;
  for (; region.to_end && read < out.whole_height; ++read) png_read_row(d.png, d.skipped.data(), nullptr);
  if (read == out.whole_height) png_read_end(d.png, nullptr);
  return true;
}

}  // namespace

void decode_png(std::string_view content, const std::string& path, const RegionChooser& choose, Image& out) {
  Decoder decoder(content);
  if (!decoder.info) fail(Exit::internal, "libpng does not start");
  const auto check = [&](bool good) {
    if (!good) fail(Exit::data, "{} cannot be decoded ({}). remove it or fetch it again", path, decoder.input.problem);
  };
  if (!chunks_fit(content)) fail(Exit::data, "{} cannot be decoded (it is cut off). remove it or fetch it again", path);
  check(read_header(decoder, out));
  const DecodeRegion region = choose(out.whole_height, out.whole_width);
  if (region.height > 0) check(read_pixels(decoder, region, out));
}

}  // namespace millrace
