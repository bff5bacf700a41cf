// Files written so that a crash or a full disk never leaves half a file under the real name.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Writes aside, flushes, fsyncs, renames, fsyncs the folder. Error(data) naming the path and the system's reason.
void write_file_atomically(const std::filesystem::path&, std::string_view content);
// The same without a flush to the disk: for what is written anew every few seconds. After a crash of the machine it may
// be empty.
void replace_file(const std::filesystem::path&, std::string_view content);
void fsync_file(const std::filesystem::path&);  // by path, for files that a library wrote
void fsync_folder(const std::filesystem::path&);
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);
std::string read_file(const std::filesystem::path&);  // Error(data)
std::vector<std::string> expand_glob(
    const std::string& pattern);  // sorted; a plain path expands to itself; none found: empty
std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t seed = 0);   // zlib's
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);  // Castagnoli's

}  // namespace millrace
