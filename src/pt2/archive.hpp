// The records of an exported network: a zip archive, read with libzip, or what program_text() has kept of one. In an
// archive every record is stored without compression, so the file bounds what can be read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "millrace/pt2/exported_program.hpp"

struct zip;

namespace millrace::pt2 {

class Archive {
 public:
  // Error(data): the file is no zip archive, or its directory is damaged: names that are not relative, that occur
  // twice or lie in several folders, records that are compressed or encrypted, or that are larger than the file.
  explicit Archive(const std::filesystem::path&);

  // From the text of program_text(). Error(data): it is no such text.
  Archive(const std::filesystem::path& path, const std::string& text);
  explicit Archive(const ExportedProgram& program)
      : Archive(program.text.empty() ? Archive(program.path) : Archive(program.path, program.text)) {}

  const std::string& path() const { return path_; }
  // Names are without the folder that contains all records.
  bool has(const std::string& record) const { return records_.contains(record); }
  // Error(data): there is no such record.
  std::uint64_t size(const std::string& record) const { return find(record).size; }
  // Error(data): it is larger than `most` bytes, its checksum differs, or the text does not have it.
  std::string read(const std::string& record, std::uint64_t most = ~std::uint64_t(0)) const;

 private:
  struct Record {
    std::uint64_t index = 0, size = 0;
    std::optional<std::string> content = {};  // of a text
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
