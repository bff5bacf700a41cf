// Files in the format safetensors (https://github.com/huggingface/safetensors): 8 bytes with the length of the header,
// the header as JSON, and the values of the tensors, little-endian, one tensor after the other.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/atomic_file.hpp"

namespace millrace {

struct StoredTensor {
  std::string type;                 // as in the header: F64, F32, F16, BF16, I64, ...
  std::vector<std::int64_t> shape;  // empty: one value
  std::uint64_t begin = 0;          // of the values in the file, in bytes
  std::int64_t count() const;
};
std::string shape_text(const std::vector<std::int64_t>& shape);  // "(64, 3, 7, 7)", as PyTorch prints it

class SafetensorsFile {
 public:
  // Reads the header. Error(data): there is no such file, or its header is damaged or does not agree with its size.
  explicit SafetensorsFile(const std::filesystem::path&);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Reads the elements [begin, begin + out.size()) as float32. Error(data): they are not F64, F32, F16 or BF16, or
  // cannot be read.
  void read(const StoredTensor&, std::int64_t begin, std::span<float> out) const;

 private:
  void read_bytes(void* out, std::size_t bytes, std::uint64_t offset) const;
  struct Descriptor {
    int fd = -1;
    Descriptor() = default;
    Descriptor(Descriptor&&) noexcept;
    ~Descriptor();
  };
  std::filesystem::path path_;
  Descriptor file_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file under a temporary name beside the final one (base/atomic_file.hpp). Every failure is an Error(data),
// such as a full disk.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name, type;
    std::vector<std::int64_t> shape;
  };
  // Error(data): there is a file at the path that millrace did not write, or this one cannot be created.
  SafetensorsWriter(const std::filesystem::path&, const std::vector<Entry>&,
                    const std::map<std::string, std::string>& metadata);
  // The values of all entries in their order, in any number of calls.
  void write(const void* data, std::size_t bytes);
  void finish();  // flushes the file to the disk and gives it its final name

 private:
  std::optional<AtomicFile> file_;
  std::uint64_t left_ = 0;  // bytes of values that were not written yet
};

// Error(data): there is a file at the path that millrace did not write.
void require_own_safetensors(const std::filesystem::path&);

// The key of the metadata by which millrace recognises its own files; its value is the version of the program.
inline constexpr const char* written_by_key = "millrace";

}  // namespace millrace
