// Reading, writing and finding files. A crash or a full disk never leaves a partial file under the final name. Failures
// are an Error(data) with the path and the reason of the system.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Writes a temporary file ("<path>.tmp"), calls fsync, renames it, and calls fsync on the folder.
void write_file_atomically(const std::filesystem::path&, std::string_view content);
// The same without fsync, for files that are rewritten every few seconds. After a crash of the machine, the file may be
// empty.
void replace_file(const std::filesystem::path&, std::string_view content);
// The same for files that several processes may write at once, also of several hosts: the temporary file has a name of
// this process.
void write_shared_file(const std::filesystem::path&, std::string_view content);
void fsync_file(const std::filesystem::path&);  // for files that a library has written
void fsync_folder(const std::filesystem::path&);
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);  // calls fsync on the folder
// Reads a regular file. Error(data) if it has more than max_bytes.
std::string read_file(const std::filesystem::path&, std::uint64_t max_bytes = ~std::uint64_t(0));
// Error(data) for a folder, a named pipe, a socket or a device: opening one may wait for ever, and reading one may
// never end. Accepts a path without a file, and /dev/null, which is an empty file.
void require_regular_file(const std::filesystem::path&);
// The same, and for /dev/null too: a rename would replace even a device by a file.
void require_replaceable(const std::filesystem::path&);
// Error(data) if there is a file at the path that does not begin with `beginning`, by which the program recognises what
// it wrote itself. Accepts a path without a file, and an empty file.
void require_own_file(const std::filesystem::path&, std::string_view beginning);
// The existing paths that match the pattern, sorted; empty if there are none. Expands braces and "~".
std::vector<std::string> expand_glob(const std::string& pattern);
// Checksums. seed: the checksum of the preceding bytes, to continue it.
std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t seed = 0);  // as in zlib
// The crc32 of two byte sequences one after the other, from their crc32s and the length of the second.
std::uint32_t combined_crc32(std::uint32_t first, std::uint32_t second, std::size_t second_bytes);
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);  // Castagnoli polynomial

}  // namespace millrace
