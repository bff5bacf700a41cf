#include "image.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

// New pixel i is the sum of weights[k] * old[first + k].
struct Taps {
  std::int64_t first;
  std::vector<float> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to) {
  const double scale = double(from) / double(to), reach = std::max(1.0, scale);
  std::vector<Taps> out;
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (double(i) + 0.5) * scale;
    const std::int64_t first = std::max<std::int64_t>(0, std::int64_t(std::floor(centre - reach + 0.5))),
                       last = std::min(from, std::int64_t(std::floor(centre + reach + 0.5)));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t at = first; at < last; ++at)
      sum += weights.emplace_back(std::max(0.0, 1 - std::abs(double(at) + 0.5 - centre) / reach));
    Taps taps{first, {}};
    for (const double w : weights) taps.weights.push_back(float(w / sum));
    out.push_back(std::move(taps));
  }
  return out;
}

}  // namespace

Image decode_image(const std::string& content, const std::string& path) {
  if (content.starts_with("\x89PNG")) return decode_png(content, path);
  if (content.starts_with("\xff\xd8\xff")) return decode_jpeg(content, path);
  fail(Exit::data, path, " is neither PNG nor JPEG. remove or convert it");
}

Image to_grey(const Image& in) {
  Image out{in.height, in.width, 1, std::vector<std::uint8_t>(std::size_t(in.height * in.width))};
  for (std::size_t i = 0; i < out.pixels.size(); ++i) {
    const std::uint8_t* p = &in.pixels[3 * i];
    out.pixels[i] = std::uint8_t((299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000);
  }
  return out;
}

// Columns first: the rows between stay whole in memory as floats.
Image resized(const Image& in, std::int64_t height, std::int64_t width) {
  const std::int64_t c = in.channels;
  std::vector<float> wide(std::size_t(in.height * width * c));
  const auto across = taps_of(in.width, width), down = taps_of(in.height, height);
  for (std::int64_t y = 0; y < in.height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const Taps& taps = across[std::size_t(x)];
      for (std::int64_t k = 0; k < c; ++k) {
        float sum = 0;
        for (std::size_t t = 0; t < taps.weights.size(); ++t)
          sum += taps.weights[t] * in.pixels[std::size_t((y * in.width + taps.first + std::int64_t(t)) * c + k)];
        wide[std::size_t((y * width + x) * c + k)] = sum;
      }
    }
  Image out{height, width, c, std::vector<std::uint8_t>(std::size_t(height * width * c))};
  std::vector<float> line(std::size_t(width * c));
  for (std::int64_t y = 0; y < height; ++y) {
    std::fill(line.begin(), line.end(), 0.5f);  // rounds
    const Taps& taps = down[std::size_t(y)];
    for (std::size_t t = 0; t < taps.weights.size(); ++t) {
      const float* from = &wide[std::size_t((taps.first + std::int64_t(t)) * width * c)];
      for (std::size_t i = 0; i < line.size(); ++i) line[i] += taps.weights[t] * from[i];
    }
    for (std::size_t i = 0; i < line.size(); ++i)
      out.pixels[std::size_t(y * width * c) + i] = std::uint8_t(std::clamp(line[i], 0.0f, 255.0f));
  }
  return out;
}

Image centre_cropped(const Image& in, std::int64_t height, std::int64_t width) {
  MR_CHECK(height <= in.height && width <= in.width);
  const std::int64_t top = (in.height - height) / 2, left = (in.width - width) / 2, c = in.channels;
  Image out{height, width, c, std::vector<std::uint8_t>(std::size_t(height * width * c))};
  for (std::int64_t y = 0; y < height; ++y)
    std::copy_n(&in.pixels[std::size_t(((top + y) * in.width + left) * c)], width * c,
                &out.pixels[std::size_t(y * width * c)]);
  return out;
}

}  // namespace millrace
