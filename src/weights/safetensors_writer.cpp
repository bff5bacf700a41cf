#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/weights/safetensors.hpp"

namespace millrace {
namespace {

constexpr std::size_t header_alignment = 64;

std::uint64_t bytes_of(const SafetensorsWriter::Entry& entry) {
  std::uint64_t out = entry.type == "I64" ? 8 : 4;
  MR_CHECK(entry.type == "I64" || entry.type == "F32", "the type {} is not written", entry.type);
  for (const std::int64_t extent : entry.shape) out *= std::uint64_t(extent);
  return out;
}

}  // namespace

void require_own_safetensors(const std::filesystem::path& path) {
  require_regular_file(path);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return;
  try {
    if (SafetensorsFile(path).metadata().contains(written_by_key)) return;
  } catch (const Error&) {  // damaged, or another format
  }
  fail(Exit::data, "{} exists and was not written by millrace. name another file, or remove this one", path.string());
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<Entry>& entries,
                                     const std::map<std::string, std::string>& metadata) {
  require_own_safetensors(path);
  nlohmann::json header;
  header["__metadata__"] = metadata;
  for (const Entry& e : entries) {
    const std::uint64_t end = left_ + bytes_of(e);
    header[e.name] = {{"dtype", e.type}, {"shape", e.shape}, {"data_offsets", {left_, end}}};
    left_ = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((8 + text.size() + header_alignment - 1) / header_alignment * header_alignment - 8, ' ');
  const std::uint64_t length = text.size();
  file_.emplace(path);
  file_->write(&length, sizeof length);
  file_->write(text.data(), text.size());
}

void SafetensorsWriter::write(const void* data, std::size_t bytes) {
  MR_CHECK(bytes <= left_, "{}: more values than its tensors have", file_->path().string());
  left_ -= bytes;
  file_->write(data, bytes);
}

void SafetensorsWriter::finish() {
  MR_CHECK(left_ == 0, "{}: {} bytes of values are missing", file_->path().string(), left_);
  file_->finish();
}

}  // namespace millrace
