#include "synthetic.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/rng.hpp"

namespace millrace {
namespace {

struct Options {
  std::int64_t rows = 50000, classes = 10;
  Shape shape{32, 32, 3};
  std::uint64_t seed = 1;
};

std::int64_t number(const std::string& text, const std::string& spec) {
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 1)
    fail(Exit::config, spec, ": '", text, "' is not a positive number");
  return value;
}

Options parse(const std::string& spec) {
  const std::string head = "synthetic:images";
  if (spec.rfind(head, 0) != 0 || (spec.size() > head.size() && spec[head.size()] != ':'))
    fail(Exit::config, "'", spec,
         "' is no synthetic source. like synthetic:images:rows=50000,shape=32x32x3,classes=10");
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
    else if (key == "shape") {
      out.shape = Shape{};
      std::istringstream extents(value);
      for (std::string one; std::getline(extents, one, 'x') && out.shape.rank < 4;)
        out.shape.dims[std::size_t(out.shape.rank++)] = number(one, spec);
    } else {
      fail(Exit::config, spec, ": '", key, "' is not known. rows, shape, classes, seed");
    }
  }
  return out;
}

// A class is a set of slow waves over the image; a sample adds noise to one in a random amplitude.
class SyntheticSource : public Source {
 public:
  explicit SyntheticSource(const Options& o)
      : o_(o), key_(rng_key(o.seed, Purpose::synthetic)), values_(o.shape.count()) {
    patterns_.resize(std::size_t(o.classes * values_));
    const std::int64_t channels = o.shape[-1], width = o.shape.rank > 1 ? o.shape[-2] : 1;
    for (std::int64_t c = 0; c < o.classes; ++c) {
      const Random4 r = philox(key_, ~0ull, std::uint64_t(c));
      const double fx = 0.5 + 2.5 * uniform01(r.v[0]), fy = 0.5 + 2.5 * uniform01(r.v[1]),
                   phase = 6.28 * uniform01(r.v[2]);
      for (std::int64_t v = 0; v < values_; ++v) {
        const double x = double(v / channels % width) / double(width), y = double(v / channels / width) / double(width);
        patterns_[std::size_t(c * values_ + v)] =
            std::uint8_t(128 + 50 * std::sin(6.2832 * (fx * x + fy * y) + phase + double(v % channels)));
      }
    }
  }

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    auto* out = static_cast<std::uint8_t*>(x);
    auto* labels = static_cast<std::int32_t*>(y);
    for (std::size_t i = 0; i < ids.size(); ++i, out += values_) {
      const std::uint64_t id = std::uint64_t(ids[i]);
      const std::int64_t c = std::int64_t(below(philox(key_, id, ~0ull).v[0], std::uint32_t(o_.classes)));
      labels[i] = std::int32_t(c);
      const std::uint8_t* pattern = patterns_.data() + c * values_;
      for (std::int64_t v = 0; v < values_; v += 16) {  // four words of noise, a byte a value
        const Random4 r = philox(key_, id, std::uint64_t(v / 16));
        std::uint8_t noise[16];
        std::memcpy(noise, r.v, 16);
        const std::int64_t n = std::min<std::int64_t>(16, values_ - v);
        for (std::int64_t k = 0; k < n; ++k) out[v + k] = std::uint8_t((pattern[v + k] + noise[k]) / 2);
      }
    }
  }
  std::string describe() const override { return "synthetic images, made by the workers"; }

 private:
  Options o_;
  std::uint64_t key_;
  std::int64_t values_;
  std::vector<std::uint8_t> patterns_;
};

}  // namespace

ShardIndex synthetic_index(const std::string& spec) {
  const Options o = parse(spec);
  ShardIndex d;
  d.rows = o.rows, d.sample = o.shape, d.classes = o.classes;
  d.scale = 1 / 255.0;
  d.y_dtype = DType::i32;
  d.mean.assign(std::size_t(o.shape[-1]), 0.5), d.std.assign(std::size_t(o.shape[-1]), 0.18);
  d.synthetic = true, d.synthetic_spec = spec;
  d.manifest_crc = crc32(spec.data(), spec.size());
  return d;
}

std::unique_ptr<Source> make_synthetic_source(const ShardIndex& index) {
  return std::make_unique<SyntheticSource>(parse(index.synthetic_spec));
}

}  // namespace millrace
