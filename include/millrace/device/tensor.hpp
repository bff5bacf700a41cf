// Shape and Tensor: plain descriptions of arrays. A Tensor is a view and does not own its memory.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "millrace/base/types.hpp"

namespace millrace {

// Up to six extents. Activations are channels-last: (N, spatial..., C). Weights of convolutions are (K, spatial..., C).
struct Shape {
  static constexpr int max_rank = 6;
  std::array<std::int64_t, max_rank> dims{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> list);
  std::int64_t operator[](int axis) const { return dims[axis < 0 ? rank + axis : axis]; }
  std::int64_t& operator[](int axis) { return dims[axis < 0 ? rank + axis : axis]; }
  std::int64_t count() const;      // number of elements; 1 for rank 0
  std::int64_t row_count() const;  // elements of one row: the product of all extents but the first
  int spatial_rank() const { return rank - 2; }
  bool operator==(const Shape&) const = default;
  std::vector<std::int64_t> extents() const { return {dims.begin(), dims.begin() + rank}; }
  std::string str() const;  // "32x28x28x1"
};

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  std::int64_t count() const { return shape.count(); }
  std::size_t bytes() const { return std::size_t(shape.count()) * size_of(dtype); }
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace millrace
