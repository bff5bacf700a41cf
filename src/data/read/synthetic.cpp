#include "data/read/synthetic.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace {
namespace {

struct Options {
  std::int64_t rows = 50000, classes = 10;
  Shape shape{32, 32, 3};
  std::uint64_t seed = 1;
  bool label_maps = false;
};

std::int64_t number(const std::string& text, const std::string& spec) {
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 1)
    fail(Exit::config, "{}: '{}' is not a positive number", spec, text);
  return value;
}

constexpr int max_dimensions = 4;

// Each worker holds a sample, and the source two patterns for each class: see SyntheticSource.
void require_bounded(const Options& o, const std::string& spec) {
  constexpr std::int64_t max_bytes = std::int64_t(1) << 30, max_rows = std::int64_t(1) << 48;
  std::int64_t bytes = 1;
  for (int axis = 0; axis < o.shape.rank; ++axis)
    if (__builtin_mul_overflow(bytes, o.shape[axis], &bytes) || bytes > max_bytes)
      fail(Exit::config, "{}: a sample would have more than 1 GiB. lower its shape", spec);
  const std::int64_t line = o.shape.rank > 1 ? o.shape[-1] * o.shape[-2] : o.shape[0];
  if ((line + bytes / line) * o.classes > max_bytes)
    fail(Exit::config, "{}: the patterns of all classes would have more than 1 GiB. lower shape or classes", spec);
  if (o.rows > max_rows) fail(Exit::config, "{}: more than 2^48 rows. lower rows", spec);
}

Options parse(const std::string& spec) {
  const std::string head = "synthetic:images";
  if (spec.rfind(head, 0) != 0 || (spec.size() > head.size() && spec[head.size()] != ':'))
    fail(Exit::config,
         "'{}' is not a synthetic source. use the form synthetic:images:rows=50000,shape=32x32x3,classes=10", spec);
  Options out;
  std::istringstream in(spec.size() > head.size() ? spec.substr(head.size() + 1) : "");
  for (std::string part; std::getline(in, part, ',');) {
    const auto equals = part.find('=');
    const std::string key = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "rows")
      out.rows = number(value, spec);
    else if (key == "classes")
      out.classes = number(value, spec);
    else if (key == "seed")
      out.seed = std::uint64_t(number(value, spec));
    else if (key == "labels") {
      if (value != "image" && value != "pixel")
        fail(Exit::config, "{}: labels={} is unknown. use image or pixel", spec, value);
      out.label_maps = value == "pixel";
    } else if (key == "shape") {
      out.shape = Shape{};
      std::istringstream extents(value);
      for (std::string one; std::getline(extents, one, 'x');) {
        if (out.shape.rank == max_dimensions)
          fail(Exit::config, "{}: the shape has more than {} dimensions", spec, max_dimensions);
        out.shape.dims[std::size_t(out.shape.rank++)] = number(one, spec);
      }
    } else {
      fail(Exit::config, "{}: unknown option '{}'. use rows, shape, classes, labels or seed", spec, key);
    }
  }
  if (out.classes > 1000000 || out.shape.rank == 0) fail(Exit::config, "{}: too many classes, or no shape", spec);
  if (out.label_maps && out.shape.rank < 2)
    fail(Exit::config, "{}: labels=pixel needs a shape with a spatial extent and channels", spec);
  require_bounded(out, spec);
  return out;
}

// Generates noise in groups of 16 Philox counters side by side, so that the compiler can vectorize. A group is 256
// bytes.
constexpr std::size_t group_counters = 16, group_bytes = 16 * group_counters;

MR_TARGET_CLONES void noise(std::uint64_t key, std::uint64_t id, std::size_t groups, std::uint8_t* out) {
  using Word = std::uint32_t;
  for (std::size_t g = 0; g < groups; ++g, out += group_bytes) {
    Word c0[group_counters], c1[group_counters], c2[group_counters], c3[group_counters];
    for (std::size_t j = 0; j < group_counters; ++j) {
      c0[j] = Word(g * group_counters + j);
      c1[j] = 0;
      c2[j] = Word(id);
      c3[j] = Word(id >> 32);
    }
    Word k0 = Word(key), k1 = Word(key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)  // philox() of base/rng.hpp
      for (std::size_t j = 0; j < group_counters; ++j) {
        const std::uint64_t p0 = std::uint64_t(0xD2511F53u) * c0[j], p1 = std::uint64_t(0xCD9E8D57u) * c2[j];
        c0[j] = Word(p1 >> 32) ^ c1[j] ^ k0;
        c1[j] = Word(p1);
        c2[j] = Word(p0 >> 32) ^ c3[j] ^ k1;
        c3[j] = Word(p0);
      }
    std::memcpy(out, c0, sizeof c0);
    std::memcpy(out + 64, c1, sizeof c1);
    std::memcpy(out + 128, c2, sizeof c2);
    std::memcpy(out + 192, c3, sizeof c3);
  }
}

// Writes the mean of the noise and of a triangular wave with phase across[i] + down.
MR_TARGET_CLONES void blend(const std::uint8_t* across, std::uint8_t down, const std::uint8_t* random,
                            std::int64_t count, std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint8_t phase = std::uint8_t(across[i] + down), mirrored = std::uint8_t(255 - phase);
    out[i] = std::uint8_t((64u + (phase < mirrored ? phase : mirrored) + random[i]) >> 1);
  }
}

// Each class is a slow wave over the image with its own direction and phase, or a fixed pattern for samples of one
// dimension. A sample is the mean of the wave and noise. With labels=pixel, a box of the sample shows another class.
class SyntheticSource : public Source {
 public:
  explicit SyntheticSource(const Options& o)
      : o_(o),
        key_(rng_key(o.seed, RngPurpose::synthetic)),
        line_(o.shape.rank > 1 ? o.shape[-1] * o.shape[-2] : o.shape[0]),
        lines_(o.shape.count() / line_) {
    across_.resize(std::size_t(o.classes * line_));
    down_.resize(std::size_t(o.classes * lines_));
    for (std::int64_t c = 0; c < o.classes; ++c) describe_class(c);
  }

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    const std::size_t groups = (std::size_t(line_ * lines_) + group_bytes - 1) / group_bytes;
    thread_local std::vector<std::uint8_t> random;
    random.resize(std::max(random.size(), groups * group_bytes));
    auto* out = static_cast<std::uint8_t*>(x);
    auto* labels = static_cast<std::int32_t*>(y);
    for (std::size_t i = 0; i < ids.size(); ++i, out += line_ * lines_) {
      const std::uint64_t id = std::uint64_t(ids[i]);
      const Random4 r = philox(key_, id, ~0ull);
      const std::int64_t c = class_of(r.v[0]);
      noise(key_, id, groups, random.data());
      for (std::int64_t l = 0; l < lines_; ++l) write_part(c, l, 0, line_, random.data(), out);
      if (o_.label_maps)
        labels += write_box(r, c, random.data(), out, labels);
      else
        *labels++ = std::int32_t(c);
    }
  }
  std::string describe() const override { return "synthetic images, generated by the workers"; }

 private:
  struct Range {
    std::int64_t begin, end;
  };

  std::int64_t class_of(std::uint32_t random) const {
    return std::int64_t(uniform_below(random, std::uint32_t(o_.classes)));
  }
  // Values [begin, end) of a line of a sample of class c.
  void write_part(std::int64_t c, std::int64_t line, std::int64_t begin, std::int64_t end, const std::uint8_t* random,
                  std::uint8_t* sample) const {
    const std::int64_t at = line * line_ + begin;
    blend(across_.data() + c * line_ + begin, down_[std::size_t(c * lines_ + line)], random + at, end - begin,
          sample + at);
  }
  // A part of an axis that is between a quarter and three quarters as long.
  static Range part_of_axis(std::int64_t extent, std::uint32_t random) {
    const std::int64_t length = std::max<std::int64_t>(1, extent / 4 + std::int64_t(random >> 16) * extent / 131072);
    const std::int64_t begin = std::int64_t(random & 0xffff) * (extent - length + 1) / 65536;
    return {begin, begin + length};
  }
  // Draws a box of another class over a sample of class c. Writes the labels of all positions; returns their number.
  std::int64_t write_box(const Random4& r, std::int64_t c, const std::uint8_t* random, std::uint8_t* sample,
                         std::int32_t* labels) const {
    const Random4 place = philox(key_, (std::uint64_t(r.v[2]) << 32) | r.v[3], ~1ull);
    const std::int64_t channels = o_.shape[-1], width = o_.shape[-2];
    const std::int64_t height = o_.shape.rank > 2 ? o_.shape[-3] : 1, depth = lines_ / height;
    const std::int64_t other =
        (c + 1 + std::int64_t(uniform_below(r.v[1], std::uint32_t(o_.classes - 1)))) % o_.classes;
    const Range z = part_of_axis(depth, place.v[0]), h = part_of_axis(height, place.v[1]),
                w = part_of_axis(width, place.v[2]);
    std::fill_n(labels, lines_ * width, std::int32_t(c));
    for (std::int64_t d = z.begin; d < z.end; ++d)
      for (std::int64_t row = h.begin; row < h.end; ++row) {
        const std::int64_t line = d * height + row;
        write_part(other, line, w.begin * channels, w.end * channels, random, sample);
        std::fill(labels + line * width + w.begin, labels + line * width + w.end, std::int32_t(other));
      }
    return lines_ * width;
  }

  void describe_class(std::int64_t c) {
    const Random4 r = philox(key_, ~0ull, std::uint64_t(c));
    const auto periods = [&](int word) {
      return 256 * (0.5 + 2.5 * uniform01(r.v[word]));
    };  // periods over the whole image, in units of 1/256
    if (o_.shape.rank == 1) {
      for (std::int64_t v = 0; v < line_; ++v)
        across_[std::size_t(c * line_ + v)] =
            std::uint8_t(philox(key_, ~1ull - std::uint64_t(c), std::uint64_t(v)).v[0]);
      return;
    }
    const std::int64_t channels = o_.shape[-1], width = o_.shape[-2];
    const std::int64_t height = o_.shape.rank > 2 ? o_.shape[-3] : 1, depth = lines_ / height;
    const double fx = periods(0), fy = periods(1), fz = periods(2);
    for (std::int64_t v = 0; v < line_; ++v)
      across_[std::size_t(c * line_ + v)] =
          std::uint8_t(std::int64_t(fx * double(v / channels) / double(width)) + 85 * (v % channels) + r.v[3] % 256);
    for (std::int64_t l = 0; l < lines_; ++l)
      down_[std::size_t(c * lines_ + l)] = std::uint8_t(
          std::int64_t(fy * double(l % height) / double(height) + fz * double(l / height) / double(depth)));
  }

  Options o_;
  std::uint64_t key_;
  std::int64_t line_, lines_;
  std::vector<std::uint8_t> across_, down_;  // phases for each class: within a line, and of each line
};

}  // namespace

ShardIndex synthetic_index(const std::string& spec) {
  const Options o = parse(spec);
  ShardIndex d;
  d.rows = o.rows;
  d.sample = o.shape;
  d.classes.count = o.classes;
  d.values.scale = 1 / 255.0;
  d.y.dtype = DType::i32;
  for (int axis = 0; o.label_maps && axis + 1 < o.shape.rank; ++axis)
    d.y.target.dims[std::size_t(d.y.target.rank++)] = o.shape[axis];
  d.values.mean.assign(std::size_t(o.shape[-1]), 0.5);
  d.values.std.assign(std::size_t(o.shape[-1]), 0.162);
  d.synthetic_spec = spec;
  d.manifest_crc = crc32(spec.data(), spec.size());
  return d;
}

std::unique_ptr<Source> make_synthetic_source(const ShardIndex& index) {
  return std::make_unique<SyntheticSource>(parse(index.synthetic_spec));
}

}  // namespace millrace
