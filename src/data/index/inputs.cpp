#include "millrace/data/index/inputs.hpp"

#include "data/index/concatenated.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::size_t alignment = 16;  // of the widest loads

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

void require_part(const ShardIndex& first, const ShardIndex& d) {
  const std::string& path = d.shards.front().path;
  if (d.encoded())
    fail(Exit::data, "{}: '{}' holds encoded images, which cannot be one of several inputs. pack them decoded", path,
         d.x.name);
  if (d.x.big_endian)
    fail(Exit::data, "{}: '{}' is big-endian, which several inputs cannot be. store it little-endian", path, d.x.name);
  for (std::size_t s = 0; s < d.shards.size(); ++s)
    if (d.shards[s].rows != first.shards[s].rows)
      fail(Exit::data, "{}: '{}' has {} rows, '{}' {}. all inputs need the same number", d.shards[s].path, d.x.name,
           d.shards[s].rows, first.x.name, first.shards[s].rows);
}

}  // namespace

std::vector<std::string> input_names(const std::string& list) { return names_of(list, "data.x"); }

ShardIndex combine_inputs(std::vector<ShardIndex> inputs) {
  ShardIndex out = inputs.front();
  std::size_t bytes = 0;
  for (const ShardIndex& d : inputs) {
    if (!d.shards.empty()) require_part(inputs.front(), d);
    bytes += aligned(d.sample_bytes());
    if (&d != &inputs.front()) {
      out.x.name += "," + d.x.name;
      out.manifest_crc = out.manifest_crc * 31 + d.manifest_crc;
    }
  }
  out.sample = {std::int64_t(bytes)};
  out.x.dtype = DType::u8;
  out.x.channels_first = false;
  out.x.layout_decided_by = "several inputs";
  out.x.parts.clear();
  out.values = {};
  out.inputs = std::move(inputs);
  return out;
}

std::size_t input_begin(const ShardIndex& d, std::size_t number) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < number; ++i) begin += aligned(d.inputs[i].sample_bytes());
  return begin;
}

}  // namespace millrace
