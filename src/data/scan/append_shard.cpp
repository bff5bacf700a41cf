#include "data/scan/append_shard.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "data/scan/shard_values.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/index/class_names.hpp"

namespace millrace {
namespace {

bool same_storage(const SampleStorage& a, const SampleStorage& b) {
  return a.dtype == b.dtype && a.big_endian == b.big_endian && a.channels_first == b.channels_first &&
         same_parts(a.parts, b.parts);
}

bool same_storage(const TargetStorage& a, const TargetStorage& b) {
  return a.dtype == b.dtype && a.big_endian == b.big_endian && a.labels == b.labels && a.target == b.target &&
         a.ignore_label == b.ignore_label && same_parts(a.parts, b.parts);
}

std::string samples_in_words(const ShardIndex& index, bool encoded) {
  return fmt::format("{}{}{}{}", index.sample.str(), index.x.channels_first ? " (channels first) " : " ",
                     name_of(index.x.dtype), encoded ? " encoded" : "");
}

std::string targets_in_words(const ShardIndex& index) {
  return fmt::format("{} {}{}", index.y.target.str(), name_of(index.y.dtype),
                     index.y.ignore_label >= 0 ? fmt::format(" (ignoring {})", index.y.ignore_label) : "");
}

void require_same_metadata(const ShardIndex& out, const ShardIndex& metadata, const Shard& shard) {
  const std::string path = shard.path;
  const bool encoded = bool(shard.x_encoded);
  if (metadata.sample != out.sample || !same_storage(metadata.x, out.x) || !same_storage(metadata.y, out.y) ||
      encoded != out.encoded())
    fail(Exit::data, "{} holds {} samples with {} targets, {} {} with {}. all files of a data set must agree", path,
         samples_in_words(metadata, encoded), targets_in_words(metadata), out.shards.front().path,
         samples_in_words(out, out.encoded()), targets_in_words(out));
  require_same_values(out, metadata, path);
  if (const std::string other = first_class_mismatch(metadata.classes.names, out.classes.names); !other.empty())
    fail(Exit::data, "in {} {} in {}. pack them together, or from folders and tables with the same classes", path,
         other, out.shards.front().path);
}

}  // namespace

void append_shard(ShardIndex& out, const ShardIndex& metadata, Shard shard) {
  if (out.shards.empty()) {
    out = metadata;
    out.shards = {};
    out.rows = 0;
  } else {
    require_same_metadata(out, metadata, shard);
  }
  if (out.classes.names.empty()) out.classes.names = metadata.classes.names;
  out.classes.count = std::max(out.classes.count, metadata.classes.count);
  for (std::size_t p = 0; p < out.y.parts.size(); ++p)
    out.y.parts[p].classes = std::max(out.y.parts[p].classes, metadata.y.parts[p].classes);
  shard.first = out.rows;
  out.rows += shard.rows;
  out.shards.push_back(shard);
}

}  // namespace millrace
