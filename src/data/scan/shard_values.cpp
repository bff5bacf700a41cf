#include "data/scan/shard_values.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "data/decode/convert_values.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace {
namespace {

double default_scale(const ShardIndex& d) { return d.x.dtype == DType::u8 && d.sample.rank >= 2 ? 1 / 255.0 : 1; }

std::vector<ConcatenatedPart> parts_of(const ShardIndex& d) {
  return d.x.parts.empty() ? std::vector<ConcatenatedPart>{{d.x.name, d.sample[-1]}} : d.x.parts;
}

Scaling scaling_of(const ShardIndex& d, std::size_t channel) {
  if (d.values.channel_scale.empty()) return {d.values.scale, d.values.offset};
  return {d.values.channel_scale[channel], d.values.channel_offset[channel]};
}

Scaling requested(const Scaling& own, const DataOptions& options) {
  return {options.scale > 0 ? options.scale : own.scale,
          options.offset != offset_from_files ? options.offset : own.offset};
}

struct Statistics {
  std::vector<double> mean, std;  // by channel; empty: the file holds none that can be used
  std::string rejected_reason;
};

// The statistics of one data set, converted from the file's own scaling to the one that is used.
Statistics statistics_of(const io::File& file, const std::string& dataset, std::int64_t channels, const Scaling& own,
                         const Scaling& used, Transform transform) {
  Statistics out;
  out.mean = file.get_numbers(dataset, "mean").value_or(std::vector<double>{});
  out.std = file.get_numbers(dataset, "std").value_or(std::vector<double>{});
  if (out.mean.empty() && out.std.empty()) return {};
  if (out.mean.size() != std::size_t(channels) || out.std.size() != out.mean.size())
    return {
        {}, {}, fmt::format("of {} and {} channels, {} has {}", out.mean.size(), out.std.size(), dataset, channels)};
  if (!std::all_of(out.mean.begin(), out.mean.end(), [](double m) { return std::isfinite(m); }) ||
      !std::all_of(out.std.begin(), out.std.end(), [](double s) { return std::isfinite(s) && s > 0; }))
    return {{}, {}, "no numbers to divide by"};
  const std::string of = file.get_string(dataset, "transform").value_or("none");
  if (of != name_of(transform))
    return {{}, {}, fmt::format("of transform {}, data.transform is {}", of, name_of(transform))};
  if (own == used) return out;
  if (transform != Transform::none)
    return {{},
            {},
            fmt::format("of {} with scale {:g} and offset {:g}, the run's are {:g} and {:g}", of, own.scale, own.offset,
                        used.scale, used.offset)};
  for (std::size_t c = 0; c < out.mean.size(); ++c) {
    out.mean[c] = (out.mean[c] - own.offset) * (used.scale / own.scale) + used.offset;
    out.std[c] *= std::abs(used.scale / own.scale);
  }
  return out;
}

void add_sample(const ShardIndex& d, const char* sample, std::vector<double>& sums) {
  const std::size_t channels = std::size_t(d.sample[-1]);
  const std::int64_t positions = d.sample.count() / std::int64_t(channels);
  std::size_t channel = 0;
  for (const ConcatenatedPart& part : parts_of(d)) {
    const Scaling s = scaling_of(d, channel);
    add_to_sums({sample, d.x.dtype, positions * part.count, part.count, d.x.channels_first},
                {s.scale, s.offset, d.values.transform}, sums.data() + channel, sums.data() + channels + channel);
    sample += std::size_t(positions * part.count) * size_of(d.x.dtype);
    channel += std::size_t(part.count);
  }
}

// "row 3 of a.h5: ", or "" without a sample.
std::string place_of(const ShardIndex& d, std::int64_t id) {
  if (id < 0 || d.synthetic()) return "";
  const std::size_t shard = d.shards.shard_with(id);
  return fmt::format("row {} of {}: ", id - d.shards.range(shard).first, d.shards[shard].path);
}

}  // namespace

std::string not_finite_hint(Transform t) {
  return t == Transform::log1p ? " as log1p, which is of values above -1 (data.offset adds to them)" : "";
}

Scaling scaling_of(const io::File& file, const std::string& dataset, double default_scale) {
  const auto number = [&](const std::string& object, const char* name) -> std::optional<double> {
    const auto stored = file.get_numbers(object, name);
    return stored && stored->size() == 1 && std::isfinite((*stored)[0]) ? std::optional((*stored)[0]) : std::nullopt;
  };
  Scaling out{default_scale, 0};
  if (const auto scale = number("/", "scale"); scale && *scale != 0) return {*scale, number("/", "offset").value_or(0)};
  const auto factor = number(dataset, "scale_factor"), add = number(dataset, "add_offset");
  const auto require_number = [&](const char* name, bool good) {
    if (!good && (file.get_numbers(dataset, name) || file.get_string(dataset, name)))
      fail(Exit::data,
           "{}: the attribute {} of {} is not one finite number{}. stored values cannot be converted without it. "
           "correct the attribute",
           file.path(), name, dataset, name == std::string("scale_factor") ? " other than 0" : "");
  };
  require_number("scale_factor", factor && *factor != 0);
  require_number("add_offset", add.has_value());
  if (factor && *factor != 0) out.scale = *factor;
  if (add) out.offset = *add;
  if (add && !factor) out.scale = 1;
  return out;
}

void read_values(ShardIndex& out, const io::File& file, const std::vector<std::string>& x, const DataOptions& options) {
  out.values.transform = options.transform;
  const auto parts = parts_of(out);
  for (std::size_t p = 0; p < x.size(); ++p) {
    const Scaling own = scaling_of(file, x[p], default_scale(out)), used = requested(own, options);
    if (p == 0) {
      out.values.scale = used.scale;
      out.values.offset = used.offset;
    }
    if (x.size() > 1) {
      out.values.channel_scale.insert(out.values.channel_scale.end(), std::size_t(parts[p].count), used.scale);
      out.values.channel_offset.insert(out.values.channel_offset.end(), std::size_t(parts[p].count), used.offset);
    }
    const Statistics s = statistics_of(file, x[p], parts[p].count, own, used, options.transform);
    out.values.mean.insert(out.values.mean.end(), s.mean.begin(), s.mean.end());
    out.values.std.insert(out.values.std.end(), s.std.begin(), s.std.end());
    if (out.values.statistics_rejected_reason.empty()) out.values.statistics_rejected_reason = s.rejected_reason;
  }
  if (out.values.mean.size() != std::size_t(out.sample[-1])) {
    out.values.mean.clear();
    out.values.std.clear();
  }
}

void require_same_values(const ShardIndex& d, const ShardIndex& other, const std::string& path) {
  std::size_t channel = 0;
  for (const ConcatenatedPart& part : parts_of(d)) {
    const Scaling first = scaling_of(d, channel), used = scaling_of(other, channel);
    if (used != first)
      fail(Exit::data,
           "{}: values of '{}' are stored * {:g} + {:g}, in {} * {:g} + {:g}. all files need the same scale and "
           "offset. rewrite them, or set data.scale and data.offset",
           path, part.name, used.scale, used.offset, d.shards.front().path, first.scale, first.offset);
    channel += std::size_t(part.count);
  }
}

void measure_statistics(World& world, ShardIndex& index, std::int64_t max_rows, const FaultOptions& faults) {
  constexpr std::int64_t max_decoded_rows = 2000;  // rank 0 decodes them while the other ranks wait
  const std::size_t channels = std::size_t(index.sample[-1]);
  constexpr std::uint64_t max_bytes = std::uint64_t(4) << 30;
  const auto rows_by_bytes = std::int64_t(max_bytes / std::max<std::size_t>(1, index.sample_bytes()));
  const std::int64_t rows = std::min({index.selected_rows(), max_rows, index.encoded() ? max_decoded_rows : max_rows,
                                      std::max<std::int64_t>(100, rows_by_bytes)}),
                     values = index.sample.count();
  // Behind the sums: the number of samples, and the first one that is not finite.
  std::vector<double> sums(2 * channels + 2, 0.0);
  double& count_of_samples = sums[2 * channels];
  double& not_finite = sums[2 * channels + 1];
  not_finite = -1;
  std::string problem;
  if (world.rank() == 0) try {
      // Evenly spread rows. One rank reads them, so that the result is the same on any number of ranks.
      const auto source =
          make_source(world, index, readable_without_hdf5(index) ? Reader::direct : Reader::automatic, faults);
      const auto queue = source->make_read_queue({});
      std::vector<char> x(index.sample_bytes());
      std::vector<float> y(std::size_t(index.y.target.count()));
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t id = index.selected(r * index.selected_rows() / rows);
        queue->begin({&id, 1}, x.data(), y.data());
        queue->finish();
        if (queue->skipped() > 0) continue;
        count_of_samples += 1;
        add_sample(index, x.data(), sums);
        if (not_finite < 0 && !std::all_of(sums.begin(), sums.end(), [](double sum) { return std::isfinite(sum); }))
          not_finite = double(id);
      }
      if (count_of_samples == 0) fail(Exit::data, "no sample of {} can be read", index.shards.front().path);
    } catch (const std::exception& e) {
      problem = e.what();
    }
  world.agree(Exit::data, problem);
  world.broadcast(sums.data(), sums.size() * sizeof(double), 0);
  const double count = count_of_samples * double(values) / double(channels);
  index.values.mean.resize(channels);
  index.values.std.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    index.values.mean[c] = sums[c] / count;
    index.values.std[c] =
        std::sqrt(std::max(1e-12, sums[channels + c] / count - index.values.mean[c] * index.values.mean[c]));
    if (!std::isfinite(sums[c]) || !std::isfinite(sums[channels + c]))
      fail(Exit::data,
           "{}values of {}, channel {}, are not finite{}. correct the values, or set data.mean and data.std",
           place_of(index, std::int64_t(not_finite)), index.x.name, c, not_finite_hint(index.values.transform));
  }
}

}  // namespace millrace
