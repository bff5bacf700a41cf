#include "millrace/base/error.hpp"
#include "millrace/device/tensor.hpp"

namespace millrace {

Shape::Shape(std::initializer_list<std::int64_t> list) {
  MR_CHECK(list.size() <= max_rank);
  for (const auto extent : list) dims[rank++] = extent;
}

std::int64_t Shape::count() const {
  std::int64_t product = 1;
  for (int axis = 0; axis < rank; ++axis) product *= dims[axis];
  return product;
}

std::int64_t Shape::row_count() const {
  std::int64_t product = 1;
  for (int axis = 1; axis < rank; ++axis) product *= dims[axis];
  return product;
}

std::string Shape::str() const {
  std::string text;
  for (int axis = 0; axis < rank; ++axis) {
    if (axis) text += 'x';
    text += std::to_string(dims[axis]);
  }
  return text.empty() ? "scalar" : text;
}

}  // namespace millrace
