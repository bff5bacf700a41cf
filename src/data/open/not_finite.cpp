// Called once when the loss is not finite, to find out whether a sample is the cause.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "data/decode/convert_values.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/index/inputs.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

bool is_float(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64;
}

bool all_finite(const void* values, DType type, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    if (!std::isfinite(value_at(values, type, i))) return false;
  return true;
}

// Labels are no floating-point numbers.
bool all_targets_finite(const TargetStorage& y, const char* values) {
  if (y.labels) return true;
  if (y.parts.empty()) return all_finite(values, DType::f32, y.target.count());
  for (const ConcatenatedPart& part : y.parts) {
    if (!part.labels && !all_finite(values, DType::f32, part.count)) return false;
    values += std::size_t(part.count) * sizeof(float);
  }
  return true;
}

bool all_inputs_finite(const ShardIndex& index, const char* sample) {
  const auto finite = [](const ShardIndex& d, const char* values) {
    return !is_float(d.x.dtype) || all_finite(values, d.x.dtype, d.sample.count());
  };
  for (std::size_t i = 0; i < index.inputs.size(); ++i)
    if (!finite(index.inputs[i], sample + input_begin(index, i))) return false;
  return finite(index, sample);
}

bool all_in_unit_range(const char* floats, const BinaryTargets& of) {
  for (std::int64_t i = of.begin; i < of.begin + of.count; ++i)
    if (const double v = value_at(floats, DType::f32, i); v < 0 || v > 1) return false;
  return true;
}

// A label that is no class, which makes a cross-entropy NaN; -1: there is none.
std::int64_t label_beyond(const ShardIndex& index, const char* labels) {
  for (std::int64_t i = 0; index.y.labels && i < std::max<std::int64_t>(1, index.y.target.count()); ++i)
    if (const auto label = std::int64_t(value_at(labels, DType::i32, i)); label >= index.classes.count) return label;
  return -1;
}

}  // namespace

std::string find_non_finite_sample(Source& source, const ShardIndex& index, std::span<const std::int64_t> ids,
                                   std::span<const BinaryTargets> binary) {
  std::vector<char> x(index.sample_pitch()), y(std::max<std::size_t>(1, y_batch_bytes(index)));
  for (const std::int64_t id : ids) {
    source.read({&id, 1}, x.data(), y.data());
    const bool good_x = all_inputs_finite(index, x.data());
    const bool good_y = all_targets_finite(index.y, y.data());
    const auto report = [&](const std::string& problem) {
      return fmt::format("sample {} of the data, in {}, has {}", id, index.shards[shard_of(index, id)].path, problem);
    };
    if (const std::int64_t label = label_beyond(index, y.data()); label >= 0)
      return report(
          fmt::format("the label {}, but there are {} classes, numbered from 0 (the files' attribute classes)", label,
                      index.classes.count));
    if (!good_x) return report("values that are not finite");
    if (!good_y) return report("a target that is not finite");
    if (!std::ranges::all_of(binary, [&](const BinaryTargets& of) { return all_in_unit_range(y.data(), of); }))
      return report("a target that is not between 0 and 1, as binary_cross_entropy needs it");
  }
  return "";
}

}  // namespace millrace
