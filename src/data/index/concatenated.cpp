#include "data/index/concatenated.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "data/index/index_serialization.hpp"
#include "millrace/base/error.hpp"

namespace millrace {

std::vector<std::string> names_of(const std::string& list, const char* key) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::size_t first = list.find_first_not_of(' ', at), last = list.find_last_not_of(' ', end ? end - 1 : 0);
    if (first >= end || first == list.npos)
      fail(Exit::config, "{}: '{}' has an empty name. names are separated by single commas", key, list);
    out.push_back(list.substr(first, last + 1 - first));
    at = end + 1;
  }
  return out;
}

ConcatenatedSamples concatenate_samples(const std::vector<io::DatasetInfo>& x, Layout requested,
                                        const std::optional<std::string>& attribute, const std::string& path,
                                        const TargetRow& y) {
  ConcatenatedSamples out;
  out.layout = sample_layout(shape_of(x[0].shape, 1), requested, attribute, path, y);
  if (x.size() == 1) return out;
  out.parts.push_back({x[0].name, out.layout.sample[-1]});
  for (std::size_t p = 1; p < x.size(); ++p) {
    const io::DatasetInfo &info = x[p], &first = x[0];
    const SampleLayout one = sample_layout(shape_of(info.shape, 1), requested, attribute, path, y);
    const std::int64_t channels = one.sample[-1];
    if (info.shape[0] != first.shape[0])
      fail(Exit::data, "{}: '{}' has {} rows, '{}' {}. all data sets of data.x need the same number", path, info.name,
           info.shape[0], first.name, first.shape[0]);
    if (info.dtype != first.dtype || info.big_endian != first.big_endian)
      fail(Exit::data, "{}: '{}' is {}{}, '{}' {}{}. all data sets of data.x need the same type", path, info.name,
           name_of(info.dtype), info.big_endian ? " big-endian" : "", first.name, name_of(first.dtype),
           first.big_endian ? " big-endian" : "");
    Shape here = one.sample, there = out.layout.sample;
    here[-1] = there[-1] = 1;
    if (here != there)
      fail(Exit::data,
           "{}: a sample of '{}' is {}, of '{}' {}. the data sets of data.x may only differ in their channels; "
           "data.layout tells which dimension holds them",
           path, info.name, one.sample.str(), first.name, out.layout.sample.str());
    // With one channel, both layouts are the same.
    const bool layout_known = out.layout.sample[-1] > std::int64_t(p);
    if (channels > 1 && layout_known && one.channels_first != out.layout.channels_first)
      fail(Exit::data, "{}: '{}' has its channels {}, the data sets before it {}. set data.layout", path, info.name,
           one.channels_first ? "first" : "last", one.channels_first ? "last" : "first");
    if (channels > 1) out.layout.channels_first = one.channels_first;
    out.layout.sample[-1] += channels;
    out.parts.push_back({info.name, channels});
  }
  return out;
}

std::vector<ConcatenatedPart> concatenate_targets(const std::vector<io::DatasetInfo>& y, const std::string& path) {
  std::vector<ConcatenatedPart> out;
  for (const io::DatasetInfo& info : y) {
    const Shape row = shape_of(info.shape, 1);
    if (info.shape[0] != y[0].shape[0])
      fail(Exit::data, "{}: '{}' has {} rows, '{}' {}. all data sets of data.y need the same number", path, info.name,
           info.shape[0], y[0].name, y[0].shape[0]);
    out.push_back({info.name, row.count(), info.dtype, info.big_endian,
                   holds_labels({info.dtype, row}, {}, fmt::format("{}: '{}'", path, info.name))});
  }
  return out;
}

ShardIndex component_index(const ShardIndex& d, std::size_t number) {
  ShardIndex out = d;
  out.component = {number, d.x.parts.size(), d.sample_bytes()};
  out.sample[-1] = d.x.parts[number].count;
  out.x.name = d.x.parts[number].name;
  out.x.parts.clear();
  out.x.big_endian = false;  // the bytes of whole samples are swapped
  ShardList shards;
  for (Shard s : d.shards) {
    if (number > 0) {
      s.x_offset = s.extra_x[number - 1].offset;
      s.x_chunks = s.extra_x[number - 1].chunks;
      s.extra_y.clear();
      s.y_chunks = nullptr;
    }
    s.extra_x.clear();
    shards.push_back(s);
  }
  out.shards = std::move(shards);
  if (number > 0) {
    out.y.labels = false;
    out.y.target = Shape{0};
    out.y.parts.clear();
  }
  return out;
}

std::vector<TargetPart> targets_of(const ShardIndex& d, const Shard& s) {
  const TargetStorage& y = d.y;
  if (y.parts.empty())
    return {{y.name, y.target.count(), s.y_offset, s.y_chunks.get(), y.dtype, y.big_endian, y.labels, y.ignore_label}};
  std::vector<TargetPart> out;
  for (std::size_t p = 0; p < y.parts.size(); ++p) {
    const ConcatenatedPart& part = y.parts[p];
    out.push_back({part.name, part.count, p ? s.extra_y[p - 1].offset : s.y_offset,
                   (p ? s.extra_y[p - 1].chunks : s.y_chunks).get(), part.dtype, part.big_endian, part.labels,
                   y.ignore_label});
  }
  return out;
}

bool same_parts(const std::vector<ConcatenatedPart>& a, const std::vector<ConcatenatedPart>& b) {
  return std::ranges::equal(
      a, b, [](const ConcatenatedPart& one, const ConcatenatedPart& other) { return one.same_storage(other); });
}

bool TargetStorage::has_label_parts() const { return std::ranges::any_of(parts, &ConcatenatedPart::labels); }

}  // namespace millrace
