// The zip archive of an exported network, read with libzip. Every record is stored without compression, so the file
// bounds what can be read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

struct zip;

namespace millrace::pt2 {

class Archive {
 public:
  // Error(data): the file is no zip archive, or its directory is damaged: names that are not relative, that occur
  // twice or lie in several folders, records that are compressed or encrypted, or that are larger than the file.
  explicit Archive(const std::filesystem::path&);

  const std::string& path() const { return path_; }
  // Names are without the folder that contains all records.
  bool has(const std::string& record) const { return records_.contains(record); }
  // Error(data): there is no such record.
  std::uint64_t size(const std::string& record) const { return find(record).size; }
  // Error(data): it is larger than `most` bytes, or its checksum differs.
  std::string read(const std::string& record, std::uint64_t most = ~std::uint64_t(0)) const;

 private:
  struct Record {
    std::uint64_t index = 0, size = 0;
  };
  struct Close {
    void operator()(zip*) const;
  };
  const Record& find(const std::string& record) const;
  void add(std::uint64_t index, std::uint64_t file_bytes);
  std::string path_, folder_;
  std::unique_ptr<zip, Close> zip_;
  std::map<std::string, Record> records_;
  std::uint64_t bytes_ = 0;  // of all records so far
};

}  // namespace millrace::pt2
