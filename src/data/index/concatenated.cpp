#include "data/index/concatenated.hpp"

#include "data/index/index_serialization.hpp"
#include "millrace/base/error.hpp"

namespace millrace {

std::vector<std::string> names_of(const std::string& list, const char* key) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::size_t first = list.find_first_not_of(' ', at), last = list.find_last_not_of(' ', end ? end - 1 : 0);
    if (first >= end || first == list.npos)
      fail(Exit::config, key, ": '", list, "' has an empty name. names are separated by single commas");
    out.push_back(list.substr(first, last + 1 - first));
    at = end + 1;
  }
  return out;
}

ConcatenatedSamples concatenate_samples(const std::vector<io::DatasetInfo>& x, Layout asked,
                                        const std::optional<std::string>& attribute, const std::string& path) {
  ConcatenatedSamples out;
  out.layout = sample_layout(shape_of(x[0].shape, 1), asked, attribute, path);
  if (x.size() == 1) return out;
  out.parts.push_back({x[0].name, out.layout.sample[-1]});
  for (std::size_t p = 1; p < x.size(); ++p) {
    const io::DatasetInfo &info = x[p], &first = x[0];
    const SampleLayout one = sample_layout(shape_of(info.shape, 1), asked, attribute, path);
    const std::int64_t channels = one.sample[-1];
    if (info.shape[0] != first.shape[0])
      fail(Exit::data, path, ": '", info.name, "' has ", info.shape[0], " rows, '", first.name, "' ", first.shape[0],
           ". all data sets of data.x need the same number");
    if (info.dtype != first.dtype || info.big_endian != first.big_endian)
      fail(Exit::data, path, ": '", info.name, "' is ", name_of(info.dtype), info.big_endian ? " big-endian" : "",
           ", '", first.name, "' ", name_of(first.dtype), first.big_endian ? " big-endian" : "",
           ". all data sets of data.x need the same type");
    Shape here = one.sample, there = out.layout.sample;
    here[-1] = there[-1] = 1;
    if (here != there)
      fail(Exit::data, path, ": a sample of '", info.name, "' is ", one.sample.str(), ", of '", first.name, "' ",
           out.layout.sample.str(), ". the data sets of data.x may only differ in their channels; data.layout ",
           "tells which dimension holds them");
    // With one channel, both layouts are the same.
    const bool layout_known = out.layout.sample[-1] > std::int64_t(p);
    if (channels > 1 && layout_known && one.channels_first != out.layout.channels_first)
      fail(Exit::data, path, ": '", info.name, "' has its channels ", one.channels_first ? "first" : "last",
           ", the data sets before it ", one.channels_first ? "last" : "first", ". set data.layout");
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
    if (holds_labels(info.dtype, row, cat(path, ": '", info.name, "'")))
      fail(Exit::data, path, ": '", info.name, "' holds integers. several data sets of data.y must be floating-point ",
           "targets of a regression. name one data set, or store it as floating point");
    if (info.dtype != y[0].dtype || info.big_endian != y[0].big_endian || info.shape[0] != y[0].shape[0])
      fail(Exit::data, path, ": '", info.name, "' has ", info.shape[0], " rows of ", name_of(info.dtype), ", '",
           y[0].name, "' ", y[0].shape[0], " of ", name_of(y[0].dtype),
           ". all data sets of data.y need the same number of rows and the same type");
    out.push_back({info.name, row.count()});
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
  if (d.y.parts.empty()) return {{d.y.name, d.y.target.count(), s.y_offset, s.y_chunks.get()}};
  std::vector<TargetPart> out;
  for (std::size_t p = 0; p < d.y.parts.size(); ++p)
    out.push_back({d.y.parts[p].name, d.y.parts[p].count, p ? s.extra_y[p - 1].offset : s.y_offset,
                   (p ? s.extra_y[p - 1].chunks : s.y_chunks).get()});
  return out;
}

}  // namespace millrace
