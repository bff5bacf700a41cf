#include "millrace/pt2/archive_copy.hpp"

#include <cstring>
#include <fstream>

#include "millrace/base/atomic_file.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/types.hpp"
#include "pt2/archive.hpp"
#include "pt2/stored_tensor.hpp"
#include "pt2/zip_places.hpp"

namespace millrace::pt2 {
namespace {

const std::string own_comment = "millrace ";

void require_own_archive(const std::filesystem::path& path) {
  require_regular_file(path);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return;
  try {
    if (find_zip_places(path).comment.starts_with(own_comment)) return;
  } catch (const Error&) {  // no archive
  }
  fail(Exit::data, "{} exists and was not written by millrace. name another file, or remove this one", path.string());
}

// All but the comment.
void copy_bytes(const std::filesystem::path& from, std::uint64_t bytes, AtomicFile& to) {
  std::ifstream in(from, std::ios::binary);
  std::vector<char> block(std::size_t(1) << 20);
  while (bytes > 0) {
    const auto part = std::min<std::uint64_t>(bytes, block.size());
    if (!in.read(block.data(), std::streamsize(part))) fail(Exit::data, "cannot read {}", from.string());
    to.write(block.data(), std::size_t(part));
    bytes -= part;
  }
}

template <class Stored>
Stored rounded(double value) {
  if constexpr (std::is_arithmetic_v<Stored>)
    return Stored(value);
  else
    return Stored(float(value));
}

// The inverse of reading a tensor: the elements of the first rows into the bytes of a record.
template <class Stored>
void scatter_values(const StoredTensor& t, const std::vector<double>& values, std::string& bytes) {
  std::vector<std::int64_t> at(t.sizes.size());
  std::int64_t to = t.offset;
  for (const double value : values) {
    const auto stored = rounded<Stored>(value);
    std::memcpy(bytes.data() + std::size_t(to) * sizeof stored, &stored, sizeof stored);
    for (std::size_t axis = at.size(); axis-- > 0;) {
      to += t.strides[axis];
      if (++at[axis] < t.sizes[axis]) break;
      to -= t.sizes[axis] * t.strides[axis];
      at[axis] = 0;
    }
  }
}

void put_values(const StoredTensor& t, const std::vector<double>& values, std::string& bytes) {
  require_fits(t, bytes.size());
  MR_CHECK(std::int64_t(values.size()) <= t.count(), "{} has fewer elements", t.name);
  switch (t.type) {
    case ScalarType::f16:
      return scatter_values<f16>(t, values, bytes);
    case ScalarType::bf16:
      return scatter_values<bf16>(t, values, bytes);
    case ScalarType::f32:
      return scatter_values<float>(t, values, bytes);
    case ScalarType::f64:
      return scatter_values<double>(t, values, bytes);
    case ScalarType::i32:
      return scatter_values<std::int32_t>(t, values, bytes);
    case ScalarType::i64:
      return scatter_values<std::int64_t>(t, values, bytes);
    default:
      fail(Exit::data, "the tensor '{}' has values of the type {}, which are not trained", t.name, name_of(t.type));
  }
}

}  // namespace

void write_archive_copy(const ExportedProgram& program, const std::filesystem::path& out, const std::string& note,
                        const NewValues& new_values) {
  require_own_archive(out);
  const Archive archive(program.path);
  const ZipPlaces places = find_zip_places(program.path);
  std::map<std::string, std::vector<const StoredTensor*>> by_record;  // tensors may share one
  for (const StoredTensor& t : program.tensors) by_record[t.record].push_back(&t);

  AtomicFile file(out);
  copy_bytes(program.path, places.comment_size, file);
  const std::string comment = own_comment + note;
  const auto comment_bytes = std::uint16_t(comment.size());
  file.write(&comment_bytes, sizeof comment_bytes);
  file.write(comment.data(), comment.size());
  std::vector<double> values;
  for (const auto& [record, tensors] : by_record) {
    std::string bytes;
    for (const StoredTensor* t : tensors) {
      if (!new_values(*t, values)) continue;
      if (bytes.empty()) bytes = archive.read(record);
      put_values(*t, values, bytes);
    }
    const auto place = places.records.find(record);
    if (bytes.empty()) continue;
    if (place == places.records.end() || place->second.bytes != bytes.size())
      fail(Exit::data, "{} has changed while it was read", program.path.string());
    file.write_at(place->second.data, bytes.data(), bytes.size());
    const std::uint32_t checksum = crc32(bytes.data(), bytes.size());
    for (const std::uint64_t offset : place->second.checksums) file.write_at(offset, &checksum, sizeof checksum);
  }
  file.finish();
}

}  // namespace millrace::pt2
