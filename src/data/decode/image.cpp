#include "millrace/data/decode/image.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

// New pixel i is the sum of weights[begin[i] + k] * old[first[i] + k], k < begin[i + 1] - begin[i].
struct FilterWeights {
  std::vector<std::int64_t> first, begin;
  std::vector<float> weights;
  std::int64_t low = 0, high = 0;  // range of the old pixels that are used

  // old_count: number of old pixels along the axis
  void set(const ResampleAxis& axis, std::int64_t old_count) {
    first.clear();
    weights.clear();
    begin.assign(1, 0);
    low = old_count;
    high = 0;
    const double reach = std::max(1.0, axis.step);
    for (std::int64_t i = 0; i < axis.count; ++i) {
      const double centre = (axis.first + double(i) + 0.5) * axis.step;
      std::int64_t at = std::max<std::int64_t>(0, std::int64_t(std::floor(centre - reach + 0.5)));
      const std::int64_t end = std::min(old_count, std::int64_t(std::floor(centre + reach + 0.5)));
      raw_.clear();
      double sum = 0;
      for (std::int64_t p = at; p < end; ++p)
        sum += raw_.emplace_back(std::max(0.0, 1 - std::abs(double(p) + 0.5 - centre) / reach));
      while (raw_.size() > 1 && raw_.back() == 0) raw_.pop_back();
      MR_CHECK(sum > 0, "new pixel {} lies outside of the image", i);
      for (const double w : raw_) weights.push_back(float(w / sum));
      first.push_back(at);
      begin.push_back(std::int64_t(weights.size()));
      low = std::min(low, at);
      high = std::max(high, at + std::int64_t(raw_.size()));
    }
  }

 private:
  std::vector<double> raw_;
};

using Four =
    float __attribute__((vector_size(16)));  // the three channels of a pixel, and the first channel of the next

// line = a * wa + b * wb for the first two rows, else line += a * wa + b * wb
void add_rows(const std::uint8_t* a, float wa, const std::uint8_t* b, float wb, bool first, std::size_t values,
              float* line) {
  if (first)
    for (std::size_t i = 0; i < values; ++i) line[i] = wa * float(a[i]) + wb * float(b[i]);
  else
    for (std::size_t i = 0; i < values; ++i) line[i] += wa * float(a[i]) + wb * float(b[i]);
}

void round_row(const float* from, std::size_t values, std::uint8_t* to) {
  for (std::size_t i = 0; i < values; ++i) {
    const float v = from[i] + 0.5f;
    to[i] = std::uint8_t(std::int32_t(v < 0 ? 0 : v > 255 ? 255 : v));
  }
}

// For each new row, sums the weighted old rows, then the weighted columns of that sum. Lines have one value more than
// the pixels need, because Four reads it.
void resample(const Image& in, const FilterWeights& down, const FilterWeights& across, std::uint8_t* to) {
  const std::size_t values = std::size_t(3 * in.width), new_values = 3 * across.first.size();
  if (down.weights.size() == down.first.size() && across.weights.size() == across.first.size() &&
      across.high - across.low == std::int64_t(across.first.size())) {  // crop without resizing
    for (const std::int64_t row : down.first)
      to = std::copy_n(&in.pixels[std::size_t((row - in.top) * in.width + across.low - in.left) * 3], new_values, to);
    return;
  }
  thread_local std::vector<float> line, new_line;
  line.assign(values + 1, 0);
  new_line.resize(new_values + 1);
  for (std::size_t y = 0; y < down.first.size(); ++y, to += new_values) {
    const std::uint8_t* row = in.pixels.data() + std::size_t(down.first[y] - in.top) * values;
    for (std::int64_t t = down.begin[y]; t < down.begin[y + 1]; t += 2, row += 2 * values) {
      const bool second = t + 1 < down.begin[y + 1];
      add_rows(row, down.weights[std::size_t(t)], second ? row + values : row,
               second ? down.weights[std::size_t(t) + 1] : 0, t == down.begin[y], values, line.data());
    }
    for (std::size_t x = 0; x < across.first.size(); ++x) {
      Four sum{}, pixel;
      const float* from = line.data() + 3 * (across.first[x] - in.left);
      for (std::int64_t t = across.begin[x]; t < across.begin[x + 1]; ++t, from += 3) {
        std::memcpy(&pixel, from, sizeof pixel);
        sum += across.weights[std::size_t(t)] * pixel;
      }
      std::memcpy(&new_line[3 * x], &sum, sizeof sum);
    }
    round_row(new_line.data(), new_values, to);
  }
}

}  // namespace

DecodeRegion full_region(std::int64_t height, std::int64_t width) { return {8, 0, 0, height, width}; }
DecodeRegion size_only(std::int64_t, std::int64_t) { return {}; }

bool is_jpeg(std::string_view content) { return content.starts_with("\xff\xd8\xff"); }

void decode_image(std::string_view content, const std::string& path, const RegionChooser& choose, Image& out) {
  if (content.starts_with("\x89PNG")) return decode_png(content, path, choose, out);
  if (is_jpeg(content)) return decode_jpeg(content, path, choose, out);
  fail(Exit::data, "{} is neither PNG nor JPEG. remove or convert it", path);
}

void to_grey(std::uint8_t* rgb, std::int64_t pixels) {
  for (std::int64_t i = 0; i < pixels; ++i) {
    const std::uint8_t* p = rgb + 3 * i;
    rgb[i] = std::uint8_t((299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000);
  }
}

void decode_and_resample(std::string_view content, const std::string& path, const GridChooser& grid_of,
                         DecodeExtent how, Image& scratch, std::uint8_t* to) {
  thread_local FilterWeights down, across;
  const bool needed = how == DecodeExtent::needed, may_reduce = needed && is_jpeg(content);
  const auto choose = [&](std::int64_t height, std::int64_t width) {
    ResampleGrid grid = grid_of(height, width);
    int eighths = 8;
    while (may_reduce && eighths > 1 && std::min(grid.down.step, grid.across.step) * eighths / 16 >= 1) eighths /= 2;
    grid.down.step *= eighths / 8.0;
    grid.across.step *= eighths / 8.0;
    down.set(grid.down, (height * eighths + 7) / 8);
    across.set(grid.across, (width * eighths + 7) / 8);
    if (how == DecodeExtent::plain) return full_region(height, width);
    return DecodeRegion{eighths, down.low, across.low, down.high - down.low, across.high - across.low, !needed};
  };
  decode_image(content, path, choose, scratch);
  resample(scratch, down, across, to);
}

}  // namespace millrace
