// CBOR: the addresses of chunks are bytes.
#include "shards_text.hpp"

#include <cstring>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using nlohmann::json;

std::vector<std::int64_t> extents(const Shape& s) { return {s.dims.begin(), s.dims.begin() + s.rank}; }

json chunks_to_json(const std::shared_ptr<const io::ChunkedLayout>& l) {
  if (!l) return nullptr;
  json filters = json::array();
  for (const io::FilterSpec& f : l->filters) filters.push_back({f.id, f.name, f.values});
  const auto* from = reinterpret_cast<const std::uint8_t*>(l->chunks.data());
  return {{"shape", l->shape},
          {"chunk", l->chunk},
          {"element", l->element_bytes},
          {"filters", filters},
          {"edges", l->edges_unfiltered},
          {"fill", json::binary({l->fill.begin(), l->fill.end()})},
          {"chunks", json::binary({from, from + l->chunks.size() * sizeof(io::ChunkInfo)})}};
}

json rows_to_json(const std::shared_ptr<const std::vector<EncodedRow>>& rows) {
  if (!rows) return nullptr;
  const auto* from = reinterpret_cast<const std::uint8_t*>(rows->data());
  return json::binary({from, from + rows->size() * sizeof(EncodedRow)});
}

std::shared_ptr<const std::vector<EncodedRow>> rows_from_json(const json& j) {
  if (j.is_null()) return nullptr;
  const auto& bytes = j.get_binary();
  auto rows = std::make_shared<std::vector<EncodedRow>>(bytes.size() / sizeof(EncodedRow));
  if (!bytes.empty()) std::memcpy(rows->data(), bytes.data(), bytes.size());
  return rows;
}

std::shared_ptr<const io::ChunkedLayout> chunks_from_json(const json& j) {
  if (j.is_null()) return nullptr;
  auto l = std::make_shared<io::ChunkedLayout>();
  j.at("shape").get_to(l->shape), j.at("chunk").get_to(l->chunk);
  l->element_bytes = j.at("element"), l->edges_unfiltered = j.at("edges");
  for (const json& f : j.at("filters")) l->filters.push_back({f[0], f[1], f[2]});
  const auto &fill = j.at("fill").get_binary(), &chunks = j.at("chunks").get_binary();
  l->fill.assign(fill.begin(), fill.end());
  l->chunks.resize(chunks.size() / sizeof(io::ChunkInfo));
  std::memcpy(l->chunks.data(), chunks.data(), chunks.size());
  return l;
}

}  // namespace

Shape shape_of(const std::vector<std::int64_t>& extents, std::size_t from) {
  Shape s;
  for (std::size_t a = from; a < extents.size(); ++a) s.dims[std::size_t(s.rank++)] = extents[a];
  return s;
}

std::string to_text(const ShardIndex& d) {
  json shards = json::array();
  for (const Shard& s : d.shards)
    shards.push_back({s.path, s.first, s.rows, s.x_offset, s.y_offset, s.file_bytes, chunks_to_json(s.x_chunks),
                      chunks_to_json(s.y_chunks), rows_to_json(s.x_encoded), s.hdf5_only});
  const json all{{"shards", shards},
                 {"rows", d.rows},
                 {"sample", extents(d.sample)},
                 {"target", extents(d.target)},
                 {"x_dtype", int(d.x_dtype)},
                 {"y_dtype", int(d.y_dtype)},
                 {"x_big_endian", d.x_big_endian},
                 {"y_big_endian", d.y_big_endian},
                 {"channels_first", d.channels_first},
                 {"layout_told_by", d.layout_told_by},
                 {"labels", d.labels},
                 {"classes", d.classes},
                 {"class_names", d.class_names},
                 {"mean", d.mean},
                 {"std", d.std},
                 {"scale", d.scale},
                 {"decode", {d.decode.resize, d.decode.crop}},
                 {"crc", d.manifest_crc},
                 {"x_name", d.x_name},
                 {"y_name", d.y_name}};
  const auto bytes = json::to_cbor(all);
  return {bytes.begin(), bytes.end()};
}

ShardIndex from_text(const std::string& text) {
  const json j = json::from_cbor(text);
  ShardIndex d;
  for (const json& s : j.at("shards"))
    d.shards.push_back({s[0].get<std::string>(), s[1], s[2], s[3], s[4], s[5], chunks_from_json(s[6]),
                        chunks_from_json(s[7]), rows_from_json(s[8]), s[9].get<std::string>()});
  d.rows = j.at("rows");
  d.sample = shape_of(j.at("sample").get<std::vector<std::int64_t>>(), 0);
  d.target = shape_of(j.at("target").get<std::vector<std::int64_t>>(), 0);
  d.x_dtype = DType(j.at("x_dtype").get<int>()), d.y_dtype = DType(j.at("y_dtype").get<int>());
  d.x_big_endian = j.at("x_big_endian"), d.y_big_endian = j.at("y_big_endian");
  d.channels_first = j.at("channels_first"), d.layout_told_by = j.at("layout_told_by");
  d.labels = j.at("labels"), d.classes = j.at("classes");
  j.at("class_names").get_to(d.class_names);
  d.mean = j.at("mean").get<std::vector<double>>(), d.std = j.at("std").get<std::vector<double>>();
  d.decode.resize = j.at("decode")[0], d.decode.crop = j.at("decode")[1];
  d.scale = j.at("scale"), d.manifest_crc = j.at("crc");
  d.x_name = j.at("x_name"), d.y_name = j.at("y_name");
  return d;
}

}  // namespace millrace
