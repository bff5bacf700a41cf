#include "data/scan/manifest_cache.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/index/index_serialization.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char magic[] = "millrace manifest 5\n";  // the number is the version of the format
constexpr std::size_t magic_bytes = sizeof magic - 1;
constexpr std::int64_t settled = 2'000'000'000;  // nanoseconds: the resolution of the coarsest file systems' clocks

// All options that the metadata of a file depend on. The structured binding makes a new member a compile error here.
std::string key_of(const DataOptions& options) {
  const auto& [paths, x, y, layout, scale, offset, transform, decode, manifest_cache, view, validation_part, faults,
               ignore_label] = options;
  std::string key = fmt::format("{}|{}|{}|{}|{:g}|{:g}|{}|{}|{}|{}", io::library_version(), x, y, int(layout), scale,
                                offset, int(transform), decode.resize, decode.crop, ignore_label);
  for (const std::string& path : paths) key += fmt::format("|{}", fs::absolute(path).string());
  return key;
}

template <class T>
json binary(const std::vector<T>& values) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(values.data());
  return json::binary({from, from + values.size() * sizeof(T)});
}
json binary(const std::string& bytes) { return json::binary({bytes.begin(), bytes.end()}); }

template <class T>
std::vector<T> values_of(const json& j) {
  const auto& bytes = j.get_binary();
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

ShardIndex index_of(const json& text, const json& plain) {
  const auto &t = text.get_binary(), &p = plain.get_binary();
  std::shared_ptr<char> memory(new char[p.size()], std::default_delete<char[]>());
  std::memcpy(memory.get(), p.data(), p.size());
  return deserialize_index({t.begin(), t.end()}, memory, p.size());
}

std::string cache_folder() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (xdg && *xdg) return fmt::format("{}/millrace", xdg);
  return home && *home ? fmt::format("{}/.cache/millrace", home) : "";
}

std::string hex(std::uint32_t value) { return fmt::format("{:08x}", value); }

}  // namespace

ManifestCache::ManifestCache(const DataOptions& options, const std::string& first_path) : key_(key_of(options)) {
  const std::string name = hex(crc32(key_.data(), key_.size()));
  const fs::path folder = fs::path(first_path).parent_path();
  adjacent_path_ = (folder / (".millrace-manifest-" + name)).string();
  if (const std::string other = cache_folder(); !other.empty())
    fallback_path_ = fmt::format("{}/manifest-{}", other, name);
  if (!load(adjacent_path_) && !fallback_path_.empty()) load(fallback_path_);
}

bool ManifestCache::load(const std::string& path) {
  std::error_code none;
  if (!fs::exists(path, none)) return false;
  try {
    const std::string all = read_file(path);
    const std::size_t head = magic_bytes + sizeof(std::uint32_t);
    if (all.compare(0, magic_bytes - 2, magic, magic_bytes - 2) == 0 && all.compare(0, magic_bytes, magic) != 0)
      return false;  // another version
    std::uint32_t sum = 0;
    if (all.size() >= head) std::memcpy(&sum, all.data() + magic_bytes, sizeof sum);
    if (all.size() < head || all.compare(0, magic_bytes, magic) != 0 ||
        sum != crc32(all.data() + head, all.size() - head))
      fail(Exit::data, "its checksum is wrong");
    const json j = json::from_cbor(all.begin() + std::ptrdiff_t(head), all.end());
    if (j.at("key") != key_) return false;
    const ShardIndex index = index_of(j.at("index"), j.at("plain"));
    for (const json& f : j.at("facts")) number_of(index_of(f, j.at("no shards")));
    old_stamps_ = values_of<FileStamp>(j.at("stamps"));
    old_metadata_ = values_of<std::uint32_t>(j.at("facts of"));
    old_ = index.shards;
    if (old_stamps_.size() != old_.size() || old_metadata_.size() != old_.size())
      fail(Exit::data, "its tables differ in length");
  } catch (const std::exception& e) {
    log::warn(fmt::format("the manifest cache {} is damaged ({}). all headers are read again", path, e.what()));
    return false;
  }
  for (std::size_t s = 0; s < old_.size(); ++s) old_at_.emplace(old_[s].path.str(), s);
  return true;
}

std::optional<ManifestCache::CachedShard> ManifestCache::find(const std::string& path, const FileStamp& stamp) const {
  const auto found = old_at_.find(path);
  if (found == old_at_.end()) return std::nullopt;
  const std::size_t s = found->second;
  if (old_stamps_[s].bytes != stamp.bytes || old_stamps_[s].mtime != stamp.mtime || stamp.mtime == 0)
    return std::nullopt;
  if (old_metadata_[s] >= metadata_.size()) return std::nullopt;
  CachedShard out{old_[s], metadata_[old_metadata_[s]].get()};
  for (const auto& chunks : {out.shard.x_chunks, out.shard.y_chunks})  // this build may lack a filter
    if (chunks && !io::unsupported_filter_reason(chunks->filters).empty()) return std::nullopt;
  return out;
}

std::uint32_t ManifestCache::number_of(const ShardIndex& metadata) {
  const auto [at, is_new] = numbers_.try_emplace(serialize_index(metadata), std::uint32_t(metadata_.size()));
  if (is_new) metadata_.push_back(std::make_unique<ShardIndex>(metadata));
  return at->second;
}

void ManifestCache::add(const Shard& shard, const ShardIndex& one, const FileStamp& stamp) {
  ShardIndex metadata = one;
  metadata.shards = {};
  metadata.rows = 0;
  const std::uint32_t number = number_of(metadata);
  new_.push_back(shard);
  new_stamps_.push_back(stamp);
  new_metadata_.push_back(number);
  // A file is scanned again at the next start (mtime 0) if another build may have the codec that this one lacks, or if
  // the size of its images depends on the first file of the data set.
  const bool fixed_size = one.decode.resize > 0 || one.decode.crop > 0;
  if (!shard.hdf5_only_reason.empty() || (shard.x_encoded && !fixed_size)) new_stamps_.back().mtime = 0;
}

void ManifestCache::add(const CachedShard& known, const FileStamp& stamp) {
  new_.push_back(known.shard);
  new_stamps_.push_back(stamp);
  new_metadata_.push_back(old_metadata_[old_at_.at(known.shard.path.str())]);
}

std::string ManifestCache::save() const {
  const auto now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::vector<FileStamp> stamps = new_stamps_;
  for (FileStamp& s : stamps)
    if (now - s.mtime < settled) s.mtime = 0;
  ShardIndex index;
  index.shards = new_;
  json metadata = json::array();
  for (const auto& f : metadata_) metadata.push_back(binary(serialize_index(*f)));
  const json all{{"key", key_},
                 {"index", binary(serialize_index(index))},
                 {"plain", binary(new_.plain_bytes())},
                 {"facts", metadata},
                 {"no shards", binary(ShardList().plain_bytes())},
                 {"stamps", binary(stamps)},
                 {"facts of", binary(new_metadata_)}};
  const auto body = json::to_cbor(all);
  const std::uint32_t sum = crc32(body.data(), body.size());
  std::string content(magic, magic_bytes);
  content.append(reinterpret_cast<const char*>(&sum), sizeof sum).append(body.begin(), body.end());
  std::string problem = "there is no other place: neither XDG_CACHE_HOME nor HOME is set";
  for (const std::string& path : {adjacent_path_, fallback_path_}) try {
      if (path.empty()) continue;
      if (path == fallback_path_) fs::create_directories(fs::path(path).parent_path());
      const std::string temporary = fmt::format("{}.{}", path, int(::getpid()));  // two runs may start at the same time
      write_file_atomically(temporary, content);
      rename_durably(temporary, path);
      return path;
    } catch (const std::exception& e) {
      problem = e.what();
    }
  log::warn(fmt::format("the manifest cache cannot be written ({}). the next start reads all headers again", problem));
  return "";
}

}  // namespace millrace
