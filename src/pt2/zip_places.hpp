// Where the bytes of a zip archive are in its file. libzip does not tell.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace millrace::pt2 {

struct RecordPlace {
  std::uint64_t data = 0, bytes = 0;          // offset and size of its content, which is stored as it is
  std::vector<std::uint64_t> checksums = {};  // offsets of its CRC-32
};

struct ZipPlaces {
  std::map<std::string, RecordPlace> records;  // by name, without the folder that contains all of them
  std::uint64_t comment_size = 0;  // offset of the size of the comment, two bytes. The comment ends the file
  std::string comment;
};

// For archives that libzip accepts. Error(data): the directory and the records do not agree.
ZipPlaces find_zip_places(const std::filesystem::path&);

}  // namespace millrace::pt2
