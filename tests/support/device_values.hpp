// Values in memory of the device under test.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/device/device.hpp"
#include "millrace/device/tensor.hpp"

namespace millrace::test {

using Values = std::vector<double>;

// The device that the cases run on. It is chosen when the test is linked.
Device& device();

// Memory of the device may be out of reach of the host. These copy and wait for the device.
inline void copy_to_device(void* device_memory, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  device().copy_to_device(Stream::compute, device_memory, from, bytes);
  device().synchronize();
}
inline void copy_to_host(void* to, const void* device_memory, std::size_t bytes) {
  if (bytes == 0) return;
  device().copy_to_host(Stream::compute, to, device_memory, bytes);
  device().synchronize();
}

// A vector of the host, and room for it in memory of the device. to_device() and to_host() copy it.
template <class T>
class DeviceVector {
 public:
  explicit DeviceVector(std::size_t size)
      : size_(size), host_(std::make_unique<T[]>(size)), device_(device(), MemoryKind::device, size * sizeof(T)) {}
  explicit DeviceVector(const std::vector<T>& values) : DeviceVector(values.size()) {
    std::copy(values.begin(), values.end(), begin());
  }
  T* data() const { return device_.as<T>(); }  // in memory of the device
  void to_device() const { copy_to_device(data(), host_.get(), size_ * sizeof(T)); }
  void to_host() const { copy_to_host(host_.get(), data(), size_ * sizeof(T)); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return host_[i]; }
  T* begin() const { return host_.get(); }
  T* end() const { return host_.get() + size_; }
  std::vector<T> copy() const { return {begin(), end()}; }

 private:
  std::size_t size_;
  std::unique_ptr<T[]> host_;
  Buffer device_;
};

// Uniform random values in [-1, 1), times scale. They are the same for the same seed.
inline Values random_values(std::int64_t count, std::uint64_t seed, double scale = 1) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = scale * (2.0 * uniform01(philox(rng_key(seed, RngPurpose::init), 0, i).v[0]) - 1.0);
  return values;
}

template <class T>
void put_as(void* to, const Values& v) {
  for (std::size_t i = 0; i < v.size(); ++i) static_cast<T*>(to)[i] = T(v[i]);
}
template <class T>
void get_as(Values& v, const void* from) {
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = double(static_cast<const T*>(from)[i]);
}

inline Values get(const Tensor& tensor) {
  Values v(static_cast<std::size_t>(tensor.count()));
  std::vector<char> values(tensor.bytes());
  copy_to_host(values.data(), tensor.data, values.size());
  Tensor t = tensor;
  t.data = values.data();
  switch (t.dtype) {
    case DType::f32:
      get_as<float>(v, t.data);
      break;
    case DType::f64:
      get_as<double>(v, t.data);
      break;
    case DType::i32:
      get_as<std::int32_t>(v, t.data);
      break;
    case DType::i64:
      get_as<std::int64_t>(v, t.data);
      break;
    case DType::u8:
      get_as<std::uint8_t>(v, t.data);
      break;
    case DType::i8:
      get_as<std::int8_t>(v, t.data);
      break;
    case DType::i16:
      get_as<std::int16_t>(v, t.data);
      break;
    case DType::u16:
      get_as<std::uint16_t>(v, t.data);
      break;
    case DType::bf16:
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = float(t.as<bf16>()[i]);
      break;
    case DType::f16:
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = float(t.as<f16>()[i]);
      break;
  }
  return v;
}

inline void put(const Tensor& tensor, const Values& v) {
  MR_CHECK(std::int64_t(v.size()) == tensor.count());
  std::vector<char> values(tensor.bytes());
  Tensor t = tensor;
  t.data = values.data();
  switch (t.dtype) {
    case DType::f32:
      put_as<float>(t.data, v);
      break;
    case DType::f64:
      put_as<double>(t.data, v);
      break;
    case DType::i32:
      put_as<std::int32_t>(t.data, v);
      break;
    case DType::i64:
      put_as<std::int64_t>(t.data, v);
      break;
    case DType::u8:
      put_as<std::uint8_t>(t.data, v);
      break;
    case DType::i8:
      put_as<std::int8_t>(t.data, v);
      break;
    case DType::i16:
      put_as<std::int16_t>(t.data, v);
      break;
    case DType::u16:
      put_as<std::uint16_t>(t.data, v);
      break;
    case DType::bf16:
      for (std::size_t i = 0; i < v.size(); ++i) t.as<bf16>()[i] = bf16(float(v[i]));
      break;
    case DType::f16:
      for (std::size_t i = 0; i < v.size(); ++i) t.as<f16>()[i] = f16(float(v[i]));
      break;
  }
  copy_to_device(tensor.data, values.data(), values.size());
}

}  // namespace millrace::test
