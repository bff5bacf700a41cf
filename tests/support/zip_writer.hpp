// Zip archives of records without compression, for tests that damage them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "support/zip_bytes.hpp"

namespace millrace::test {

using ZipRecords = std::vector<std::pair<std::string, std::string>>;  // name and content

// deflates: compress the contents, as other programs do.
inline std::string zip_of(const ZipRecords& records, bool deflates = false) {
  std::string out, directory;
  for (const auto& [name, content] : records) {
    const std::string stored = deflates ? deflated(content) : content;
    const auto crc = std::uint64_t(::crc32(0, reinterpret_cast<const Bytef*>(content.data()), uInt(content.size())));
    const std::string common = little(0, 2) + little(deflates ? 8 : 0, 2) + little(0, 4) + little(crc, 4) +
                               little(stored.size(), 4) + little(content.size(), 4) + little(name.size(), 2);
    directory +=
        "PK\1\2" + little(20, 2) + little(20, 2) + common + std::string(12, '\0') + little(out.size(), 4) + name;
    out += "PK\3\4" + little(20, 2) + common + little(0, 2) + name + stored;
  }
  const std::string end = "PK\5\6" + little(0, 4) + little(records.size(), 2) + little(records.size(), 2) +
                          little(directory.size(), 4) + little(out.size(), 4) + little(0, 2);
  return out + directory + end;
}

}  // namespace millrace::test
