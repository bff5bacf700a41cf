#include "pt2/zip_places.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "millrace/base/error.hpp"

namespace millrace::pt2 {
namespace {

constexpr std::uint16_t has_descriptor = 8;  // of the flags of a record
constexpr std::uint32_t in_extra = 0xffffffff;
constexpr std::size_t end_bytes = 22, entry_bytes = 46, local_bytes = 30, locator_bytes = 20, end_64_bytes = 56;

class ZipFile {
 public:
  explicit ZipFile(const std::filesystem::path& path) : path_(path.string()), file_(path, std::ios::binary) {
    std::error_code none;
    size_ = std::filesystem::file_size(path, none);
    if (none || !file_) fail(Exit::data, "cannot open {}", path_);
  }
  std::uint64_t size() const { return size_; }
  std::string read(std::uint64_t offset, std::uint64_t bytes) {
    if (offset > size_ || bytes > size_ - offset) refuse("a part lies beyond its end");
    std::string out(std::size_t(bytes), '\0');
    file_.seekg(std::streamoff(offset));
    if (!file_.read(out.data(), std::streamsize(bytes))) fail(Exit::data, "cannot read {}", path_);
    return out;
  }
  [[noreturn]] void refuse(const char* why) const {
    fail(Exit::data, "{} is damaged: {}. export the network again", path_, why);
  }

 private:
  std::string path_;
  std::ifstream file_;
  std::uint64_t size_ = 0;
};

template <class T>
T number_at(const std::string& bytes, std::size_t at) {
  T out;
  MR_CHECK(at + sizeof out <= bytes.size());
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

struct Directory {
  std::uint64_t begin = 0, bytes = 0;
};

Directory find_directory(ZipFile& file, ZipPlaces& places) {
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(file.size(), end_bytes + 0xffff);
  const std::string tail = file.read(file.size() - tail_bytes, tail_bytes);
  std::size_t at = tail.rfind("PK\5\6");
  while (at != tail.npos &&
         (at + end_bytes > tail.size() || at + end_bytes + number_at<std::uint16_t>(tail, at + 20) != tail.size()))
    at = at == 0 ? tail.npos : tail.rfind("PK\5\6", at - 1);
  if (at == tail.npos) file.refuse("it has no directory");
  const std::uint64_t end = file.size() - tail_bytes + at;
  places.comment_size = end + 20;
  places.comment = tail.substr(at + end_bytes);
  Directory out{number_at<std::uint32_t>(tail, at + 16), number_at<std::uint32_t>(tail, at + 12)};
  if (end < locator_bytes) return out;
  const std::string locator = file.read(end - locator_bytes, locator_bytes);
  if (!locator.starts_with("PK\6\7")) return out;
  const std::string end_64 = file.read(number_at<std::uint64_t>(locator, 8), end_64_bytes);
  if (!end_64.starts_with("PK\6\6")) file.refuse("its directory of 64 bits is missing");
  return {number_at<std::uint64_t>(end_64, 48), number_at<std::uint64_t>(end_64, 40)};
}

// A number of 32 bits in the entry, or the next one of 64 bits in its extra field.
std::uint64_t wide(ZipFile& file, std::uint32_t narrow, const std::string& extra, std::size_t& at) {
  if (narrow != in_extra) return narrow;
  if (at + 8 > extra.size()) file.refuse("an entry of its directory is too short");
  at += 8;
  return number_at<std::uint64_t>(extra, at - 8);
}

// The numbers of 64 bits among the extra fields.
std::string zip64_field(const std::string& extra) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::size_t bytes = number_at<std::uint16_t>(extra, at + 2);
    if (number_at<std::uint16_t>(extra, at) == 1 && at + 4 + bytes <= extra.size()) return extra.substr(at + 4, bytes);
    at += 4 + bytes;
  }
  return "";
}

RecordPlace find_record(ZipFile& file, std::uint64_t local, std::uint16_t flags, std::uint64_t bytes) {
  const std::string header = file.read(local, local_bytes);
  if (!header.starts_with("PK\3\4")) file.refuse("a record is not where its directory says");
  RecordPlace out{local + local_bytes + number_at<std::uint16_t>(header, 26) + number_at<std::uint16_t>(header, 28),
                  bytes};
  if ((flags & has_descriptor) == 0) {
    out.checksums.push_back(local + 14);
  } else {  // behind the content, with or without a signature
    const std::string descriptor = file.read(out.data + bytes, 4);
    out.checksums.push_back(out.data + bytes + (descriptor == "PK\7\10" ? 4 : 0));
  }
  return out;
}

}  // namespace

ZipPlaces find_zip_places(const std::filesystem::path& path) {
  ZipFile file(path);
  ZipPlaces out;
  const Directory directory = find_directory(file, out);
  const std::string entries = file.read(directory.begin, directory.bytes);
  for (std::size_t at = 0; at + entry_bytes <= entries.size();) {
    const std::string entry = entries.substr(at, entry_bytes);
    if (!entry.starts_with("PK\1\2")) file.refuse("an entry of its directory has no signature");
    const std::size_t name_bytes = number_at<std::uint16_t>(entry, 28),
                      extra_bytes = number_at<std::uint16_t>(entry, 30);
    const std::size_t end = at + entry_bytes + name_bytes + extra_bytes + number_at<std::uint16_t>(entry, 32);
    if (end > entries.size()) file.refuse("an entry of its directory is too short");
    const std::string name = entries.substr(at + entry_bytes, name_bytes);
    const std::string wide_numbers = zip64_field(entries.substr(at + entry_bytes + name_bytes, extra_bytes));
    std::size_t read = 0;
    const std::uint64_t bytes = wide(file, number_at<std::uint32_t>(entry, 24), wide_numbers, read);
    wide(file, number_at<std::uint32_t>(entry, 20), wide_numbers, read);
    const std::uint64_t local = wide(file, number_at<std::uint32_t>(entry, 42), wide_numbers, read);
    RecordPlace place = find_record(file, local, number_at<std::uint16_t>(entry, 8), bytes);
    place.checksums.push_back(directory.begin + at + 16);
    out.records[name.substr(name.find('/') + 1)] = place;
    at = end;
  }
  return out;
}

}  // namespace millrace::pt2
