// The format is CBOR, because it holds chunk addresses as bytes.
#include "data/index/index_serialization.hpp"

#include <cstring>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using nlohmann::json;

using Chunks = std::shared_ptr<const io::ChunkedLayout>;

json table_to_json(const io::ChunkList& chunks, std::string* tables) {
  const auto* from = reinterpret_cast<const char*>(chunks.begin());
  const std::size_t bytes = chunks.size() * sizeof(io::ChunkInfo);
  if (!tables) return json::binary({from, from + bytes});
  tables->append(from, bytes);
  return {tables->size() - bytes, chunks.size()};
}

io::ChunkList table_from_json(const json& j, const std::shared_ptr<const char>& tables) {
  if (!j.is_binary()) return {tables, j[0], j[1]};
  const auto& bytes = j.get_binary();
  std::vector<io::ChunkInfo> own(bytes.size() / sizeof(io::ChunkInfo));
  std::memcpy(own.data(), bytes.data(), bytes.size());
  return own;
}

json chunks_to_json(const Chunks& l, std::string* tables) {
  if (!l) return nullptr;
  json filters = json::array();
  for (const io::FilterSpec& f : l->filters) filters.push_back({f.id, f.name, f.values});
  return {{"shape", l->shape},
          {"chunk", l->chunk},
          {"element", l->element_bytes},
          {"filters", filters},
          {"edges", l->partial_chunks_unfiltered},
          {"fill", json::binary({l->fill.begin(), l->fill.end()})},
          {"chunks", table_to_json(l->chunks, tables)}};
}

json extents_to_json(const std::vector<DatasetLocation>& all, std::string* tables) {
  json out = json::array();
  for (const DatasetLocation& e : all) out.push_back({e.offset, chunks_to_json(e.chunks, tables)});
  return out;
}

json parts_to_json(const std::vector<ConcatenatedPart>& all) {
  json out = json::array();
  for (const ConcatenatedPart& p : all)
    out.push_back({p.name, p.count, int(p.dtype), p.big_endian, p.labels, p.classes});
  return out;
}

std::vector<ConcatenatedPart> parts_from_json(const json& j) {
  std::vector<ConcatenatedPart> out;
  for (const json& p : j) out.push_back({p[0].get<std::string>(), p[1], DType(p[2].get<int>()), p[3], p[4], p[5]});
  return out;
}

template <class T>
json bytes_of(const std::shared_ptr<const std::vector<T>>& list) {
  if (!list) return nullptr;
  const auto* from = reinterpret_cast<const std::uint8_t*>(list->data());
  return json::binary({from, from + list->size() * sizeof(T)});
}

template <class T>
std::shared_ptr<const std::vector<T>> list_from(const json& j) {
  if (j.is_null()) return nullptr;
  const auto& bytes = j.get_binary();
  auto list = std::make_shared<std::vector<T>>(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(list->data(), bytes.data(), bytes.size());
  return list;
}

Chunks chunks_from_json(const json& j, const std::shared_ptr<const char>& tables) {
  if (j.is_null()) return nullptr;
  auto l = std::make_shared<io::ChunkedLayout>();
  j.at("shape").get_to(l->shape);
  j.at("chunk").get_to(l->chunk);
  l->element_bytes = j.at("element");
  l->partial_chunks_unfiltered = j.at("edges");
  for (const json& f : j.at("filters")) l->filters.push_back({f[0], f[1], f[2]});
  const auto& fill = j.at("fill").get_binary();
  l->fill.assign(fill.begin(), fill.end());
  l->chunks = table_from_json(j.at("chunks"), tables);
  return l;
}

json encoded_to_json(const EncodedRows* e) {
  if (!e) return nullptr;
  return {int(e->locator), e->rows, e->at, e->base, e->bytes, e->name, bytes_of(e->list)};
}

std::shared_ptr<const EncodedRows> encoded_from_json(const json& j) {
  if (j.is_null()) return nullptr;
  return std::make_shared<const EncodedRows>(EncodedRows{EncodedRows::Locator(j[0].get<int>()), j[1], j[2], j[3], j[4],
                                                         j[5].get<std::string>(), list_from<EncodedRow>(j[6])});
}

std::vector<DatasetLocation> extents_from_json(const json& j, const std::shared_ptr<const char>& tables) {
  std::vector<DatasetLocation> out;
  for (const json& e : j) out.push_back({e[0], chunks_from_json(e[1], tables)});
  return out;
}

}  // namespace

Shape shape_of(const std::vector<std::int64_t>& extents, std::size_t from) {
  Shape s;
  for (std::size_t a = from; a < extents.size(); ++a) s.dims[std::size_t(s.rank++)] = extents[a];
  return s;
}

std::string serialize_index(const ShardIndex& d, std::string* tables) {
  json shards = json::array();
  for (const auto& [at, s] : d.shards.irregular_shards())
    shards.push_back({at, s.path.str(), s.first, s.rows, s.x_offset, s.y_offset, s.file_bytes,
                      chunks_to_json(s.x_chunks, tables), chunks_to_json(s.y_chunks, tables),
                      encoded_to_json(s.x_encoded.get()), s.hdf5_only_reason, extents_to_json(s.extra_x, tables),
                      extents_to_json(s.extra_y, tables), s.array.extents(), bytes_of(s.pixels), s.mtime_seconds});
  const json all{{"shards", shards},
                 {"rows", d.rows},
                 {"sample", d.sample.extents()},
                 {"target", d.y.target.extents()},
                 {"x_dtype", int(d.x.dtype)},
                 {"y_dtype", int(d.y.dtype)},
                 {"x_big_endian", d.x.big_endian},
                 {"y_big_endian", d.y.big_endian},
                 {"channels_first", d.x.channels_first},
                 {"layout_told_by", d.x.layout_decided_by},
                 {"labels", d.y.labels},
                 {"ignore_label", d.y.ignore_label},
                 {"classes", d.classes.count},
                 {"class_names", d.classes.names},
                 {"mean", d.values.mean},
                 {"std", d.values.std},
                 {"unfit_statistics", d.values.statistics_rejected_reason},
                 {"scale", {d.values.scale, d.values.offset}},
                 {"channel_scale", d.values.channel_scale},
                 {"channel_offset", d.values.channel_offset},
                 {"transform", int(d.values.transform)},
                 {"x_parts", parts_to_json(d.x.parts)},
                 {"y_parts", parts_to_json(d.y.parts)},
                 {"decode", {d.decode.resize, d.decode.crop}},
                 {"crc", d.manifest_crc},
                 {"x_name", d.x.name},
                 {"y_name", d.y.name}};
  const auto bytes = json::to_cbor(all);
  return {bytes.begin(), bytes.end()};
}

ShardIndex deserialize_index(const std::string& text, std::shared_ptr<const char> plain, std::size_t plain_bytes,
                             std::shared_ptr<const char> tables) {
  const json j = json::from_cbor(text);
  ShardIndex d;
  std::map<std::size_t, Shard> irregular;
  for (const json& s : j.at("shards"))
    irregular[s[0]] = {s[1].get<std::string>(),
                       s[2],
                       s[3],
                       s[4],
                       s[5],
                       s[6],
                       chunks_from_json(s[7], tables),
                       chunks_from_json(s[8], tables),
                       encoded_from_json(s[9]),
                       s[10].get<std::string>(),
                       extents_from_json(s[11], tables),
                       extents_from_json(s[12], tables),
                       shape_of(s[13].get<std::vector<std::int64_t>>(), 0),
                       list_from<Pixel>(s[14]),
                       s[15]};
  d.shards = ShardList::from_plain_bytes(std::move(plain), plain_bytes, std::move(irregular));
  d.rows = j.at("rows");
  d.sample = shape_of(j.at("sample").get<std::vector<std::int64_t>>(), 0);
  d.y.target = shape_of(j.at("target").get<std::vector<std::int64_t>>(), 0);
  d.x.dtype = DType(j.at("x_dtype").get<int>());
  d.y.dtype = DType(j.at("y_dtype").get<int>());
  d.x.big_endian = j.at("x_big_endian");
  d.y.big_endian = j.at("y_big_endian");
  d.x.channels_first = j.at("channels_first");
  d.x.layout_decided_by = j.at("layout_told_by");
  d.y.labels = j.at("labels");
  d.y.ignore_label = j.at("ignore_label");
  d.classes.count = j.at("classes");
  j.at("class_names").get_to(d.classes.names);
  d.values.mean = j.at("mean").get<std::vector<double>>();
  d.values.std = j.at("std").get<std::vector<double>>();
  d.decode.resize = j.at("decode")[0];
  d.decode.crop = j.at("decode")[1];
  d.values.statistics_rejected_reason = j.at("unfit_statistics");
  d.values.scale = j.at("scale")[0];
  d.values.offset = j.at("scale")[1];
  d.manifest_crc = j.at("crc");
  j.at("channel_scale").get_to(d.values.channel_scale);
  j.at("channel_offset").get_to(d.values.channel_offset);
  d.values.transform = Transform(j.at("transform").get<int>());
  d.x.parts = parts_from_json(j.at("x_parts"));
  d.y.parts = parts_from_json(j.at("y_parts"));
  d.x.name = j.at("x_name");
  d.y.name = j.at("y_name");
  return d;
}

}  // namespace millrace
