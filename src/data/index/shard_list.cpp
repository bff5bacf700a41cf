// A list consists of records of a fixed size and of names. The names of the few folders lie in the same memory as the
// names of the files.
#include "millrace/data/index/shard_list.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

struct Record {
  std::int64_t first, rows;
  std::uint64_t x_offset, y_offset, file_bytes;
  std::uint32_t folder, name;  // offsets in the memory of names, below 4 GiB
  std::uint16_t folder_bytes, name_bytes;
  std::uint32_t mtime_seconds;  // the record has no padding, so that equal shards give equal bytes
};
struct Header {
  std::uint64_t records, name_bytes;
};

// Whether x and y are one range of bytes each. The structured binding makes a new member of Shard a compile error here.
bool is_plain(const Shard& shard) {
  const auto& [path, first, rows, x_offset, y_offset, file_bytes, x_chunks, y_chunks, x_encoded, hdf5_only_reason,
               extra_x, extra_y, array, pixels, mtime_seconds] = shard;
  return !x_chunks && !y_chunks && !x_encoded && hdf5_only_reason.empty() && extra_x.empty() && extra_y.empty() &&
         array.rank == 0 && !pixels;
}

}  // namespace

struct ShardList::Data {
  // Memory of this list while it grows. Empty if the list is a view of other memory, which `keep` owns.
  std::vector<Record> own_records;
  std::string own_names;
  std::unordered_map<std::string, std::uint32_t> folders;
  std::shared_ptr<const char> keep;
  const Record* records = nullptr;
  const char* names = nullptr;
  std::size_t count = 0, name_bytes = 0;
  std::map<std::size_t, Shard> irregular;

  Data() = default;
  Data(const Data& other)
      : own_records(other.records, other.records + other.count),
        own_names(other.names, other.name_bytes),
        folders(other.folders),
        irregular(other.irregular) {
    use_own_memory();
  }

  void use_own_memory() {
    records = own_records.data();
    count = own_records.size();
    names = own_names.data();
    name_bytes = own_names.size();
  }

  std::uint32_t add_name(std::string_view name) {
    const std::size_t at = own_names.size();
    if (at + name.size() >= std::size_t(1) << 32) fail(Exit::data, "the names of the files take more than 4 GiB");
    own_names.append(name);
    return std::uint32_t(at);
  }

  void add(const Shard& shard) {
    const std::string path = shard.path.str();
    const std::size_t slash = path.rfind('/') + 1;  // npos + 1: 0
    const auto [folder, is_new] = folders.try_emplace(path.substr(0, slash), 0u);
    if (is_new) folder->second = add_name(folder->first);
    if (!is_plain(shard)) {
      Shard& copy = irregular.emplace(own_records.size(), shard).first->second;
      copy.path = path;
    }
    if (path.size() >= std::size_t(1) << 16) fail(Exit::data, "{} is too long a path", path);
    own_records.push_back({shard.first, shard.rows, shard.x_offset, shard.y_offset, shard.file_bytes, folder->second,
                           add_name(std::string_view(path).substr(slash)), std::uint16_t(slash),
                           std::uint16_t(path.size() - slash), shard.mtime_seconds});
    use_own_memory();
  }
};

ShardList::ShardList() : data_(std::make_shared<Data>()) {}

ShardList::ShardList(std::initializer_list<Shard> shards) : ShardList() {
  for (const Shard& s : shards) push_back(s);
}

std::size_t ShardList::size() const { return data_->count; }

Shard ShardList::operator[](std::size_t s) const {
  if (!data_->irregular.empty())
    if (const auto found = data_->irregular.find(s); found != data_->irregular.end()) return found->second;
  const Record& r = data_->records[s];
  Shard out;
  out.path = FilePath({data_->names + r.folder, r.folder_bytes}, {data_->names + r.name, r.name_bytes});
  out.first = r.first;
  out.rows = r.rows;
  out.x_offset = r.x_offset;
  out.y_offset = r.y_offset;
  out.file_bytes = r.file_bytes;
  out.mtime_seconds = r.mtime_seconds;
  return out;
}

Shard ShardList::at(std::size_t s) const {
  MR_CHECK(s < size(), "shard {} of {}", s, size());
  return (*this)[s];
}

ShardRange ShardList::range(std::size_t s) const {
  const Record& r = data_->records[s];
  return {r.first, r.rows, r.x_offset};
}

std::size_t ShardList::shard_with(std::int64_t id) const {
  const Record* const end = data_->records + data_->count;
  const auto after =
      std::upper_bound(data_->records, end, id, [](std::int64_t i, const Record& r) { return i < r.first; });
  return std::size_t(after - data_->records) - 1;
}

void ShardList::push_back(const Shard& shard) {
  const bool own = data_.use_count() == 1 && !data_->keep;
  const auto data = own ? std::const_pointer_cast<Data>(data_) : std::make_shared<Data>(*data_);
  data->add(shard);
  data_ = data;
}

const std::map<std::size_t, Shard>& ShardList::irregular_shards() const { return data_->irregular; }

std::string ShardList::plain_bytes() const {
  const Header header{data_->count, data_->name_bytes};
  std::string out(sizeof header + data_->count * sizeof(Record) + data_->name_bytes, '\0');
  std::memcpy(out.data(), &header, sizeof header);
  if (data_->count > 0) std::memcpy(out.data() + sizeof header, data_->records, data_->count * sizeof(Record));
  if (data_->name_bytes > 0) std::memcpy(out.data() + out.size() - data_->name_bytes, data_->names, data_->name_bytes);
  return out;
}

ShardList ShardList::from_plain_bytes(std::shared_ptr<const char> memory, std::size_t bytes,
                                      std::map<std::size_t, Shard> irregular) {
  MR_CHECK(bytes >= sizeof(Header) && reinterpret_cast<std::uintptr_t>(memory.get()) % alignof(Record) == 0);
  Header header;
  std::memcpy(&header, memory.get(), sizeof header);
  MR_CHECK(bytes == sizeof header + header.records * sizeof(Record) + header.name_bytes);
  auto data = std::make_shared<Data>();
  data->count = header.records;
  data->name_bytes = header.name_bytes;
  data->records = reinterpret_cast<const Record*>(memory.get() + sizeof header);
  data->names = memory.get() + sizeof header + header.records * sizeof(Record);
  data->keep = std::move(memory);
  data->irregular = std::move(irregular);
  ShardList out;
  out.data_ = std::move(data);
  return out;
}

}  // namespace millrace
