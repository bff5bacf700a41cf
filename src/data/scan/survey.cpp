#include "millrace/data/scan/survey.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "data/decode/convert_values.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

constexpr std::int64_t max_surveyed_targets = 1 << 22;
constexpr std::size_t max_surveyed_files = 64;
constexpr std::int64_t max_surveyed_rows = 10000, max_surveyed_images = 100;
constexpr std::size_t max_surveyed_bytes = 64u << 20;

struct RowBlock {
  std::size_t shard;
  std::int64_t row, rows;  // in the shard
};

// All rows of a small data set, else evenly spread blocks.
std::vector<RowBlock> blocks_to_read(const ShardIndex& d, std::int64_t width) {
  const std::int64_t piece = std::clamp<std::int64_t>((1 << 18) / width, 1, 1 << 16);
  std::vector<RowBlock> out;
  if (d.rows * width <= max_surveyed_targets && d.shards.size() <= max_surveyed_files) {
    for (std::size_t s = 0; s < d.shards.size(); ++s)
      for (std::int64_t row = 0, rows = d.shards.range(s).rows; row < rows; row += piece)
        out.push_back({s, row, std::min(piece, rows - row)});
    return out;
  }
  const std::int64_t most = std::clamp<std::int64_t>(max_surveyed_targets / width, 1, max_surveyed_files);
  const std::int64_t count = std::min(d.rows, most);  // fewer where a row is wide
  const std::int64_t rows = std::max<std::int64_t>(1, std::min(max_surveyed_targets / width, d.rows) / count);
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t id = d.rows * b / count;
    const std::size_t s = d.shards.shard_with(id);
    const ShardRange range = d.shards.range(s);
    out.push_back({s, id - range.first, std::min(rows, range.end() - id)});
  }
  return out;
}

// Steps of about this part of so many places reach each of them once, and any number of steps is spread evenly.
std::int64_t spreading_step(std::int64_t places) {
  constexpr double golden_ratio = 0.6180339887498949;
  std::int64_t step = std::max<std::int64_t>(1, std::int64_t(golden_ratio * double(places)));
  while (std::gcd(step, places) != 1) ++step;
  return step;
}

void add_target_row(TargetSurvey& out, const ShardIndex& d, const char* y, std::int64_t width, const RowBlock& at,
                    std::int64_t row) {
  std::int64_t ones = 0, zeros = 0;
  std::int64_t* counter = nullptr;  // of the label before, because maps repeat them
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    const double value = value_at(y, d.y.dtype, row * width + i);
    if (d.y.labels) {
      const auto label = std::int64_t(value);
      if (d.y.ignore_label >= 0 && label == d.y.ignore_label) continue;
      if (!counter || label != counted) counter = &out.labels[label];
      counted = label;
      ++*counter;
      continue;
    }
    out.targets.add(value);
    if (!std::isfinite(value) && out.first_not_finite.empty())
      out.first_not_finite = fmt::format("row {} of {}", at.row + row, d.shards[at.shard].path);
    if (out.distinct.size() <= TargetSurvey::max_distinct && std::isfinite(value)) out.distinct.insert(value);
    out.whole_numbers = out.whole_numbers && value == std::floor(value);
    ones += value == 1;
    zeros += value == 0;
  }
  out.one_hot = out.one_hot && width > 1 && ones == 1 && zeros == width - 1;
  ++out.rows;
}

}  // namespace

void ValueRange::add(double value) {
  if (!std::isfinite(value)) {
    ++not_finite;
    return;
  }
  smallest = std::min(smallest, value);
  largest = std::max(largest, value);
  sum += value;
  squares += value * value;
  ++count;
}

double ValueRange::deviation() const {
  return count > 0 ? std::sqrt(std::max(0.0, squares / double(count) - mean() * mean())) : 0;
}

bool has_plain_samples(const ShardIndex& d) {
  return !d.synthetic() && !d.samples_are_views() && d.inputs.empty() && d.rows > 0;
}

bool has_plain_targets(const ShardIndex& d) {
  return !d.synthetic() && !d.samples_are_views() && d.rows > 0 && d.y.parts.empty() && !d.y.name.empty() &&
         d.y.target.count() > 0;
}

bool written_by_pack(const ShardIndex& d) {
  return io::File::open(d.shards.front().path).get_string("/", "format").value_or("").starts_with("millrace-");
}

TargetSurvey survey_targets(const ShardIndex& d, double deadline) {
  TargetSurvey out;
  const std::int64_t width = std::max<std::int64_t>(1, d.y.target.count());
  std::optional<io::File> file;
  std::string opened;
  const std::vector<RowBlock> blocks = blocks_to_read(d, width);
  // Any number of blocks is spread over the data set, if only because the time is over.
  const bool limited = std::isfinite(deadline);
  const auto count = std::ssize(blocks), step = limited ? spreading_step(count) : 1;
  std::int64_t first = count;  // the first block with a target that is not finite
  for (std::int64_t b = 0; b < count && (b == 0 || steady_seconds() < deadline); ++b) {
    const std::int64_t number = b * step % count;
    const RowBlock& block = blocks[std::size_t(number)];
    const std::string known = std::exchange(out.first_not_finite, "");
    const std::string path = d.shards[block.shard].path;
    if (path != opened) file.emplace(io::File::open(path));
    opened = path;
    std::vector<char> y(std::size_t(block.rows * width) * size_of(d.y.dtype));
    file->read_rows(d.y.name, block.row, block.rows, d.y.dtype, y.data());
    for (std::int64_t r = 0; r < block.rows; ++r) add_target_row(out, d, y.data(), width, block, r);
    if (!out.first_not_finite.empty() && number < first)
      first = number;
    else
      out.first_not_finite = known;
  }
  return out;
}

std::vector<std::string> target_concerns(World& world, const std::vector<std::string>& files) {
  if (files.size() > max_surveyed_files) return {};
  try {
    DataOptions options;
    options.paths = files;
    const ShardIndex d = index_shards(world, options);
    if (world.rank() == 0 && has_plain_targets(d)) return concerns(d, survey_targets(d));
  } catch (const Error&) {  // whoever uses the files reports it
  }
  return {};
}

SampleSurvey survey_samples(const ShardIndex& d, double deadline) {
  SampleSurvey out;
  const auto by_bytes = std::int64_t(max_surveyed_bytes / std::max<std::size_t>(1, d.sample_bytes()));
  const std::int64_t most = d.encoded() ? max_surveyed_images : max_surveyed_rows;
  const std::int64_t rows = std::min({d.rows, most, std::max<std::int64_t>(16, by_bytes)});
  const auto source = make_source(*solo_world(), d, readable_without_hdf5(d) ? Reader::direct : Reader::automatic);
  std::vector<char> x(d.sample_bytes());
  std::vector<char> y(std::max<std::size_t>(1, y_batch_bytes(d)));
  const std::int64_t step = std::isfinite(deadline) ? spreading_step(rows) : 1;
  std::int64_t first_id = d.rows;
  for (std::int64_t r = 0; r < rows && (r == 0 || steady_seconds() < deadline); ++r) {
    const std::int64_t id = r * step % rows * d.rows / rows, before = out.values.not_finite;
    source->read({&id, 1}, x.data(), y.data());
    for (std::int64_t i = 0; i < d.sample.count(); ++i) out.values.add(value_at(x.data(), d.x.dtype, i));
    ++out.rows;
    if (out.values.not_finite == before) continue;
    ++out.rows_not_finite;
    if (id > first_id) continue;
    first_id = id;
    const std::size_t s = d.shards.shard_with(id);
    out.first_not_finite = fmt::format("row {} of {}", id - d.shards.range(s).first, d.shards[s].path);
  }
  return out;
}

bool lacks_labels(const DataOptions& options) {
  bool lacks = false;
  try {
    for (const std::string& pattern : options.paths)
      for (const std::string& path : expand_glob(pattern)) {
        const auto file = io::File::open(path);
        lacks = file.has("/" + options.x) && !file.has("/" + options.y);
        if (!lacks) return false;
      }
  } catch (const Error&) {  // index_shards() reports it
    return false;
  }
  return lacks;
}

std::string describe_values(const ShardIndex& set) {
  std::string out;
  for (const std::string& concern : layout_concerns(set)) out += "warning: " + concern + "\n";
  const auto add = [&](const auto& survey) {
    out += describe(set, survey) + "\n";
    for (const std::string& concern : concerns(set, survey)) out += "warning: " + concern + "\n";
  };
  try {
    if (has_plain_targets(set)) add(survey_targets(set));
    if (has_plain_samples(set)) add(survey_samples(set));
  } catch (const Error& error) {
    out += fmt::format("the values cannot be read ({})\n", error.what());
  }
  return out;
}

}  // namespace millrace
