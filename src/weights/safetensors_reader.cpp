#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/printable.hpp"
#include "millrace/base/types.hpp"
#include "millrace/weights/safetensors.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_header_bytes = 100 << 20;  // as of the format's own library
constexpr std::size_t max_axes = 64;

std::size_t bytes_of_type(const std::string& type) {
  static const std::map<std::string, std::size_t> table = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"U64", 8},     {"I32", 4},     {"U32", 4},
      {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"C64", 8}};
  const auto it = table.find(type);
  return it == table.end() ? 0 : it->second;
}

// What is wrong with a header, without the name of the file.
struct Refused {
  std::string why;
};

// The values of one tensor: [begin, end) in the part of the file behind the header.
struct Extent {
  std::uint64_t begin, end;
  std::string name;
};

Extent add_tensor(const std::string& name, const json& entry, std::uint64_t data_bytes, StoredTensor& out) {
  out.type = entry.at("dtype").get<std::string>();
  std::uint64_t bytes = bytes_of_type(out.type);
  if (bytes == 0) throw Refused{fmt::format("'{}' has the unknown type {}", name, out.type)};
  if (entry.at("shape").size() > max_axes) throw Refused{fmt::format("'{}' has too many axes", name)};
  for (const json& extent : entry.at("shape")) {
    if (!extent.is_number_unsigned()) throw Refused{fmt::format("'{}' has a shape that is not of whole numbers", name)};
    const auto n = extent.get<std::uint64_t>();
    if (n > 0 && bytes > data_bytes / n) throw Refused{fmt::format("'{}' is larger than the file", name)};
    bytes *= n;
    out.shape.push_back(std::int64_t(n));
  }
  const json& offsets = entry.at("data_offsets");
  if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    throw Refused{fmt::format("'{}' has no data_offsets", name)};
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data_bytes || end - begin != bytes)
    throw Refused{
        fmt::format("the data_offsets of '{}' do not agree with its shape or with the size of the file", name)};
  out.begin = begin;
  return {begin, end, name};
}

// The format allows neither gaps nor overlaps.
void require_no_gaps(std::vector<Extent>& extents, std::uint64_t data_bytes) {
  std::ranges::sort(extents, {}, [](const Extent& e) { return std::pair(e.begin, e.end); });
  std::uint64_t at = 0;
  for (const Extent& e : extents) {
    if (e.begin != at) throw Refused{fmt::format("the values of '{}' do not begin where those before it end", e.name)};
    at = e.end;
  }
  if (at != data_bytes) throw Refused{fmt::format("{} bytes at its end belong to no tensor", data_bytes - at)};
}

json parse_header(const std::string& text) {
  std::set<std::string> names;
  const auto refuse_repetition = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key && !names.insert(parsed.get<std::string>()).second)
      throw Refused{fmt::format("it has '{}' twice", parsed.get<std::string>())};
    return true;
  };
  json header = json::parse(text, refuse_repetition);
  if (!header.is_object()) throw Refused{"its header is not an object"};
  return header;
}

}  // namespace

std::int64_t StoredTensor::count() const {
  std::int64_t out = 1;
  for (const std::int64_t extent : shape) out *= extent;
  return out;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  require_regular_file(path);
  file_.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat s {};
  if (file_.fd < 0 || ::fstat(file_.fd, &s) != 0)
    fail(Exit::data, "cannot open {} ({})", path.string(), std::strerror(errno));
  const auto size = std::uint64_t(s.st_size);
  try {
    std::uint64_t header_bytes = 0;
    if (size < sizeof header_bytes) throw Refused{"it is too short"};
    read_bytes(&header_bytes, sizeof header_bytes, 0);
    if ((header_bytes & 0xffff) == 0x4b50)  // a zip file, as torch.save() writes
      throw Refused{"it is a file of torch.save(). write it with safetensors.torch.save_file() in place of that"};
    if (header_bytes > max_header_bytes || header_bytes > size - sizeof header_bytes)
      throw Refused{"the length of its header is wrong"};
    std::string text(header_bytes, ' ');
    read_bytes(text.data(), text.size(), sizeof header_bytes);
    const std::uint64_t data = sizeof header_bytes + header_bytes;
    std::vector<Extent> extents;
    const json header = parse_header(text);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__")
        metadata_ = entry.get<std::map<std::string, std::string>>();
      else
        extents.push_back(add_tensor(name, entry, size - data, tensors_[name]));
    }
    require_no_gaps(extents, size - data);
    for (auto& [name, tensor] : tensors_) tensor.begin += data;
  } catch (const Refused& refused) {
    fail(Exit::data, "{} is damaged or not a safetensors file: {}", path.string(), printable(refused.why, 500));
  } catch (const json::exception&) {
    fail(Exit::data, "{} is damaged or not a safetensors file: its header is not as the format has it", path.string());
  }
}

SafetensorsFile::Descriptor::Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}

SafetensorsFile::Descriptor::~Descriptor() {
  if (fd >= 0) ::close(fd);
}

void SafetensorsFile::read_bytes(void* out, std::size_t bytes, std::uint64_t offset) const {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(file_.fd, static_cast<char*>(out) + done, bytes - done, off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(Exit::data, "cannot read {} ({})", path_.string(), n < 0 ? std::strerror(errno) : "it has become shorter");
    done += std::size_t(n);
  }
}

void SafetensorsFile::read(const StoredTensor& tensor, std::int64_t begin, std::span<float> out) const {
  const std::size_t size = bytes_of_type(tensor.type);
  const std::uint64_t offset = tensor.begin + std::uint64_t(begin) * size;
  if (tensor.type == "F32") return read_bytes(out.data(), out.size_bytes(), offset);
  std::vector<char> raw(out.size() * size);
  const auto convert = [&]<class T>(T) {
    read_bytes(raw.data(), raw.size(), offset);
    for (std::size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, raw.data() + i * size, size);
      out[i] = float(value);
    }
  };
  if (tensor.type == "F64")
    convert(double());
  else if (tensor.type == "F16")
    convert(f16());
  else if (tensor.type == "BF16")
    convert(bf16());
  else
    fail(Exit::data, "{} holds a tensor of type {}. weights must be F64, F32, F16 or BF16", path_.string(),
         tensor.type);
}

}  // namespace millrace
