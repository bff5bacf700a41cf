#include "pt2/stored_tensor.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/types.hpp"
#include "pt2/archive.hpp"

namespace millrace::pt2 {
namespace {

bool is_integer(ScalarType type) {
  return type == ScalarType::u8 || type == ScalarType::i8 || type == ScalarType::i16 || type == ScalarType::i32 ||
         type == ScalarType::i64 || type == ScalarType::boolean;
}

template <class Stored, class T>
void gather(const StoredTensor& t, const std::string& bytes, std::span<T> out) {
  std::vector<std::int64_t> at(t.sizes.size());
  std::int64_t from = t.offset;
  for (T& value : out) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + std::size_t(from) * sizeof(Stored), sizeof stored);
    value = T(stored);
    for (std::size_t axis = at.size(); axis-- > 0;) {
      from += t.strides[axis];
      if (++at[axis] < t.sizes[axis]) break;
      from -= t.sizes[axis] * t.strides[axis];
      at[axis] = 0;
    }
  }
}

}  // namespace

std::string name_of(ScalarType type) {
  switch (type) {
    case ScalarType::u8:
      return "uint8";
    case ScalarType::i8:
      return "int8";
    case ScalarType::i16:
      return "int16";
    case ScalarType::i32:
      return "int32";
    case ScalarType::i64:
      return "int64";
    case ScalarType::f16:
      return "float16";
    case ScalarType::f32:
      return "float32";
    case ScalarType::f64:
      return "float64";
    case ScalarType::boolean:
      return "bool";
    case ScalarType::bf16:
      return "bfloat16";
  }
  return fmt::format("type {}", int(type));
}

std::size_t element_bytes(ScalarType type) {
  switch (type) {
    case ScalarType::u8:
    case ScalarType::i8:
    case ScalarType::boolean:
      return 1;
    case ScalarType::i16:
    case ScalarType::f16:
    case ScalarType::bf16:
      return 2;
    case ScalarType::i32:
    case ScalarType::f32:
      return 4;
    case ScalarType::i64:
    case ScalarType::f64:
      return 8;
  }
  return 0;
}

std::int64_t StoredTensor::count() const {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

bool StoredTensor::in_state_dict() const { return record.starts_with("data/weights/"); }

bool StoredTensor::is_integer() const {
  return type != ScalarType::f16 && type != ScalarType::bf16 && type != ScalarType::f32 && type != ScalarType::f64;
}

bool StoredTensor::same_storage(const StoredTensor& other) const {
  return record == other.record && offset == other.offset && sizes == other.sizes && strides == other.strides &&
         type == other.type;
}

void require_fits(const StoredTensor& t, std::uint64_t record_bytes) {
  constexpr std::int64_t most = std::int64_t(1) << 40;
  if (t.sizes.size() != t.strides.size() || t.sizes.size() > 64)
    fail(Exit::data, "the tensor '{}' has {} extents and {} strides", t.name, t.sizes.size(), t.strides.size());
  std::int64_t count = 1, last = t.offset;
  bool good = t.offset >= 0 && t.offset <= most;
  for (std::size_t axis = 0; axis < t.sizes.size() && good; ++axis) {
    const std::int64_t size = t.sizes[axis], stride = t.strides[axis];
    good = size >= 0 && stride >= 0 && size <= most && stride <= most;
    std::int64_t step = 0;
    good = good && !__builtin_mul_overflow(count, size, &count) && count <= most;
    good = good && !__builtin_mul_overflow(std::max<std::int64_t>(size, 1) - 1, stride, &step);
    good = good && !__builtin_add_overflow(last, step, &last) && last <= most;
  }
  const std::size_t bytes = element_bytes(t.type);
  // A broadcast tensor of few stored elements could ask for any amount of memory.
  if (!good || (count > 0 && bytes > 0 && std::uint64_t(last) >= record_bytes / bytes) ||
      std::uint64_t(count) > record_bytes)
    fail(Exit::data, "the tensor '{}' has elements beyond its {} bytes in the archive", t.name, record_bytes);
}

TensorReader::TensorReader(const ExportedProgram& program) : archive_(std::make_unique<Archive>(program)) {}
TensorReader::TensorReader(TensorReader&&) noexcept = default;
TensorReader::~TensorReader() = default;

template <class T>
void TensorReader::read_as(const StoredTensor& t, std::span<T> out) {
  const std::string bytes = archive_->read(t.record);
  require_fits(t, bytes.size());  // the file may have changed
  MR_CHECK(std::int64_t(out.size()) == t.count());
  switch (t.type) {
    case ScalarType::u8:
    case ScalarType::boolean:
      return gather<std::uint8_t>(t, bytes, out);
    case ScalarType::i8:
      return gather<std::int8_t>(t, bytes, out);
    case ScalarType::i16:
      return gather<std::int16_t>(t, bytes, out);
    case ScalarType::i32:
      return gather<std::int32_t>(t, bytes, out);
    case ScalarType::i64:
      return gather<std::int64_t>(t, bytes, out);
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) switch (t.type) {
      case ScalarType::f16:
        return gather<f16>(t, bytes, out);
      case ScalarType::bf16:
        return gather<bf16>(t, bytes, out);
      case ScalarType::f32:
        return gather<float>(t, bytes, out);
      case ScalarType::f64:
        return gather<double>(t, bytes, out);
      default:
        break;
    }
  fail(Exit::data, "{}: the values of '{}' are {}, which cannot be read here", archive_->path(), t.name,
       name_of(t.type));
}

void TensorReader::read(const StoredTensor& t, std::span<float> out) { read_as(t, out); }

void TensorReader::read(const StoredTensor& t, std::span<std::int64_t> out) {
  if (!is_integer(t.type))
    fail(Exit::data, "{}: the values of '{}' are {}, not integers", archive_->path(), t.name, name_of(t.type));
  read_as(t, out);
}

}  // namespace millrace::pt2
