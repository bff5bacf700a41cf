#include "millrace/data/scan/split_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "data/decode/convert_values.hpp"
#include "data/scan/apportion.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/base/permutation.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

using Parts = std::vector<std::uint16_t>;  // by sample

constexpr std::int64_t rows_at_once = 1 << 16;
constexpr std::uint64_t split_key = 1u << 31;  // part of the key of permutations, which other uses do not have

PartWeights weights_of(const SplitOptions& o) {
  constexpr double unit = 1e6;
  const auto share = [&](std::size_t k) {
    return k < o.split.size() ? std::int64_t(std::llround(o.split[k] * unit)) : std::int64_t(0);
  };
  const std::int64_t train = o.split.empty() ? std::int64_t(unit) : share(0);
  PartWeights out;
  if (o.fold.of > 0)
    out.weights.assign(std::size_t(o.fold.of), train);
  else
    out.weights = {train, share(1)};
  const std::int64_t factor = std::max<std::int64_t>(1, o.fold.of);
  out.weights.push_back(share(2) * factor);
  out.used = out.weights.size();
  const std::int64_t sum = std::reduce(out.weights.begin(), out.weights.end());
  out.total = std::max(std::int64_t(unit) * factor, sum);
  out.weights.push_back(out.total - sum);
  return out;
}

void require_suitable(const ShardIndex& d, const SplitOptions& o) {
  if (d.samples_are_views())
    fail(Exit::config,
         "data.split: {} overlap or follow each other, so their parts would share data. remove data.split and "
         "data.fold, and {}",
         d.view.str(),
         d.view.sample == SampleKind::patch ? "set data.holdout" : "name files of their own in data.valid");
  if (o.fold.of > 0 && o.split.size() > 1 && o.split[1] > 0)
    fail(Exit::config,
         "data.fold: a fold is the validation part, so its share in data.split must be 0, not {:g}. set data.split = "
         "{:g},0{}",
         o.split[1], o.split[0] + o.split[1], o.split.size() > 2 ? fmt::format(",{:g}", o.split[2]) : "");
  if (o.split_by == SplitBy::labels && (!d.y.labels || d.y.label_maps() || d.synthetic()))
    fail(Exit::config,
         "data.split_by: labels needs files with one class number a sample, but data.y holds {}. set it to rows or "
         "group",
         d.synthetic() ? "synthetic data"
         : d.y.labels  ? "label maps"
                       : "targets");
  if (o.split_by == SplitBy::group && d.synthetic())
    fail(Exit::config, "data.split_by: synthetic data has no groups. set it to rows");
}

// The labels of all samples; -1: none. Empty: the samples have no label each.
std::vector<std::int32_t> read_labels(const ShardIndex& d) {
  if (!d.y.labels || d.y.target.rank > 0 || d.synthetic()) return {};
  std::vector<std::int32_t> out(std::size_t(d.rows));
  std::vector<char> stored(std::size_t(rows_at_once) * size_of(d.y.dtype));
  for (const Shard& shard : d.shards) {
    const io::File file = io::File::open(shard.path);
    for (std::int64_t row = 0; row < shard.rows; row += rows_at_once) {
      const std::int64_t rows = std::min(rows_at_once, shard.rows - row);
      file.read_rows(d.y.name, row, rows, d.y.dtype, stored.data());
      labels_to_int32(stored.data(), d.y.dtype, rows, d.y.ignore_label, out.data() + shard.first + row);
    }
  }
  for (std::int32_t& label : out) label = std::max(label, -1);
  return out;
}

void require_groups(const io::File& file, const std::string& name, std::int64_t rows) {
  if (!file.has(name))
    fail(Exit::data, "data.group: {} has no data set '{}'. name the one with the group of each row", file.path(), name);
  const io::DatasetInfo info = file.info(name);
  const std::int64_t values = std::accumulate(info.shape.begin(), info.shape.end(), std::int64_t(1), std::multiplies());
  const bool integers = info.unsupported_reason.empty() && is_integer(info.dtype);
  if (!integers)
    fail(Exit::data,
         "data.group: '{}' of {} does not hold integers that can be read. store a number for each group (numpy: "
         "np.unique(names, return_inverse=True)[1])",
         name, file.path());
  if (values != rows || info.shape.empty() || info.shape[0] != rows)
    fail(Exit::data, "data.group: '{}' of {} has {} values, but there are {} rows. store one for each row", name,
         file.path(), values, rows);
}

std::vector<std::int64_t> read_groups(const ShardIndex& d, const std::string& name) {
  std::vector<std::int64_t> out(std::size_t(d.rows));
  for (const Shard& shard : d.shards) {
    const io::File file = io::File::open(shard.path);
    require_groups(file, name, shard.rows);
    file.read_rows(name, 0, shard.rows, DType::i64, out.data() + shard.first);
  }
  return out;
}

struct Division {
  const ShardIndex& data;
  const SplitOptions& options;
  const PartWeights weights;
  std::int64_t groups = 0;

  Parts by_group();
  // strata: by sample, from 0 on, or -1 for samples that no part needs; empty: all samples are alike.
  Parts by_stratum(const std::vector<std::int32_t>& strata) const;
  void require_rows(std::int64_t rows, std::int64_t stratum) const;
};

Parts Division::by_group() {
  const std::vector<std::int64_t> of_rows = read_groups(data, options.group);
  std::vector<std::int64_t> values = of_rows;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  groups = std::int64_t(values.size());
  if (groups < weights.wanted())
    fail(Exit::config, "data.group: '{}' has {} different values, too few for {} parts. lower the number of parts",
         options.group, groups, weights.wanted());
  const Permutation order(options.split_seed, 0, values.size(), RngPurpose::shuffle, split_key);
  std::vector<std::int64_t> sizes(values.size());
  const auto place = [&](std::int64_t value) {
    const auto number = std::lower_bound(values.begin(), values.end(), value) - values.begin();
    return std::size_t(order(std::uint64_t(number)));
  };
  for (const std::int64_t value : of_rows) ++sizes[place(value)];
  const Parts of_groups = apportion_groups(sizes, weights);
  Parts out;
  out.reserve(of_rows.size());
  for (const std::int64_t value : of_rows) out.push_back(of_groups[place(value)]);
  return out;
}

void Division::require_rows(std::int64_t rows, std::int64_t stratum) const {
  if (rows >= weights.wanted()) return;
  const bool classes = options.split_by == SplitBy::labels;
  const auto& names = data.classes.names;
  fail(Exit::config, "data.split: {} {} samples, too few for {} parts. {}",
       !classes                              ? "there are"
       : std::size_t(stratum) < names.size() ? fmt::format("class '{}' has", names[std::size_t(stratum)])
                                             : fmt::format("class {} has", stratum),
       rows, weights.wanted(), classes ? "add some, or set data.split_by = rows" : "use fewer parts");
}

Parts Division::by_stratum(const std::vector<std::int32_t>& strata) const {
  std::vector<std::int64_t> sizes(1);  // place 0: without a stratum
  for (const std::int32_t s : strata) {
    if (std::size_t(s + 1) >= sizes.size()) sizes.resize(std::size_t(s) + 2);
    ++sizes[std::size_t(s + 1)];
  }
  if (strata.empty()) sizes = {0, data.rows};
  std::vector<std::int64_t> owed(weights.weights.size());
  std::vector<std::vector<std::int64_t>> ends(sizes.size());  // of the parts, in the random order of a stratum
  std::vector<Permutation> orders;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    if (s > 0 && sizes[s] > 0) require_rows(sizes[s], std::int64_t(s) - 1);
    ends[s] = apportion(sizes[s], weights, s > 0 && sizes[s] > 0, owed);
    std::partial_sum(ends[s].begin(), ends[s].end(), ends[s].begin());
    orders.emplace_back(options.split_seed, s, std::uint64_t(std::max<std::int64_t>(1, sizes[s])), RngPurpose::shuffle,
                        split_key);
  }
  std::vector<std::uint64_t> seen(sizes.size());
  Parts out;
  out.reserve(std::size_t(data.rows));
  for (std::int64_t row = 0; row < data.rows; ++row) {
    const std::size_t s = strata.empty() ? 1 : std::size_t(strata[std::size_t(row)] + 1);
    const auto position = std::int64_t(orders[s](seen[s]++));
    out.push_back(std::uint16_t(std::upper_bound(ends[s].begin(), ends[s].end(), position) - ends[s].begin()));
  }
  return out;
}

constexpr std::uint16_t codes = 4;  // training, validation, test and not used

// From the numbers of the parts to those of training, validation, test and not used.
void name_parts(Parts& parts, const SplitOptions& o) {
  const auto folds = std::uint16_t(std::max<std::int64_t>(2, o.fold.of));
  for (std::uint16_t& part : parts) {
    if (part >= folds)
      part = std::uint16_t(part - folds + 2);
    else if (o.fold.of > 0)
      part = part == o.fold.number - 1;
  }
}

std::string describe(const ShardIndex& d, const Division& division, const Parts& parts,
                     const std::vector<std::int32_t>& labels) {
  constexpr std::size_t most_classes = 20;
  std::vector<std::int64_t> all(codes);
  std::vector<std::vector<std::int64_t>> of_classes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ++all[parts[i]];
    if (labels.empty() || labels[i] < 0) continue;
    if (std::size_t(labels[i]) >= of_classes.size())
      of_classes.resize(std::size_t(labels[i]) + 1, std::vector<std::int64_t>(codes));
    ++of_classes[std::size_t(labels[i])][parts[i]];
  }
  const SplitOptions& o = division.options;
  std::string out = fmt::format("data.split: {} samples for training, {} for validation, {} for the test{}{}{}", all[0],
                                all[1], all[2], all[3] > 0 ? fmt::format(", {} not used", all[3]) : "",
                                division.groups > 0 ? fmt::format(", of {} groups", division.groups) : "",
                                o.fold.of > 0 ? fmt::format(" (fold {} of {})", o.fold.number, o.fold.of) : "");
  for (std::size_t c = 0; c < std::min(most_classes, of_classes.size()); ++c)
    out += fmt::format("{}{}: {}, {}, {}", c == 0 ? "; of the classes " : "; ",
                       c < d.classes.names.size() ? d.classes.names[c] : std::to_string(c), of_classes[c][0],
                       of_classes[c][1], of_classes[c][2]);
  return out + (of_classes.size() > most_classes ? "; ..." : "");
}

std::shared_ptr<const RowSelection> select(World& world, const ShardIndex& d, const Parts& parts, std::uint16_t code) {
  std::vector<std::uint64_t> bits((std::size_t(d.rows) + 63) / 64);
  if (world.rank() == 0) {
    std::vector<bool> wanted(codes);
    wanted[code] = true;
    bits = RowSelection(parts, wanted).bits();
  }
  world.broadcast(bits.data(), bits.size() * sizeof(bits[0]), 0);
  return std::make_shared<const RowSelection>(std::move(bits), d.rows);
}

}  // namespace

const std::shared_ptr<const RowSelection>& RowSplit::part(SplitPart p) const {
  return p == SplitPart::train ? train : p == SplitPart::valid ? valid : test;
}

RowSplit split_rows(World& world, const ShardIndex& d, const SplitOptions& o) {
  constexpr std::int64_t most_rows_for_counts = std::int64_t(1) << 26;
  require_suitable(d, o);
  RowSplit out;
  Parts parts;
  Exit code = Exit::data;
  std::string problem;
  if (world.rank() == 0) try {
      Division division{d, o, weights_of(o)};
      std::vector<std::int32_t> labels;
      if (o.split_by == SplitBy::labels || d.rows <= most_rows_for_counts) labels = read_labels(d);
      parts = o.split_by == SplitBy::group
                  ? division.by_group()
                  : division.by_stratum(o.split_by == SplitBy::labels ? labels : std::vector<std::int32_t>());
      name_parts(parts, o);
      out.crc32c = crc32c(parts.data(), parts.size() * sizeof(parts[0]));
      out.text = describe(d, division, parts, labels);
    } catch (const Error& e) {
      code = e.code();
      problem = e.what();
    }
  world.agree(code, problem);
  world.broadcast(&out.crc32c, sizeof out.crc32c, 0);
  out.train = select(world, d, parts, 0);
  out.valid = select(world, d, parts, 1);
  out.test = select(world, d, parts, 2);
  return out;
}

}  // namespace millrace
