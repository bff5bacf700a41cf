#include "model/pt2/constants.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"

namespace millrace::pt2 {
namespace {

Sizes dense_strides(const Sizes& sizes) {
  Sizes out(sizes.size(), 1);
  for (std::size_t axis = sizes.size(); axis-- > 1;) out[axis - 1] = out[axis] * sizes[axis];
  return out;
}

}  // namespace

std::int64_t checked_count(const Sizes& sizes) {
  constexpr std::int64_t most = std::int64_t(1) << 24;
  std::int64_t count = 1;
  for (const std::int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(count, size, &count) || count > most)
      fail(Exit::data, "needs a constant of more than {} elements, or with an extent below 0", most);
  return count;
}

double as_type(double value, Constant::Type type) {
  if (type == Constant::Type::boolean) return double(value != 0);
  return type == Constant::Type::integer ? std::trunc(value) : value;
}

Sizes without_rows(Sizes sizes) {
  for (std::int64_t& size : sizes)
    if (size != 0 && size % rows_symbol == 0) {
      if (size != rows_symbol) fail(Exit::data, "joins the rows of a constant with other axes");
      size = 1;
    }
  return sizes;
}

Sizes broadcast_sizes(const Sizes& a, const Sizes& b) {
  Sizes out(std::max(a.size(), b.size()), 1);
  for (const Sizes* sizes : {&a, &b})
    for (std::size_t i = 0; i < sizes->size(); ++i) {
      std::int64_t& to = out[out.size() - sizes->size() + i];
      const std::int64_t size = (*sizes)[i];
      if (size != to && size != 1 && to != 1) fail(Exit::data, "combines constants whose extents do not fit");
      if (to == 1) to = size;
    }
  return out;
}

Constant Constant::of(const Sizes& sizes, std::vector<double> values, Type type) {
  if (checked_count(sizes) != std::int64_t(values.size())) fail(Exit::data, "has a constant of another size");
  return {std::make_shared<std::vector<double>>(std::move(values)), sizes, dense_strides(sizes), 0, type};
}

Constant Constant::filled(const Sizes& sizes, double value, Type type) {
  return of(sizes, std::vector<double>(std::size_t(checked_count(sizes)), value), type);
}

std::int64_t Constant::count() const { return checked_count(sizes); }

void Constant::each(const std::function<void(double&)>& body) const {
  const std::int64_t all = count();
  std::vector<std::int64_t> at(sizes.size(), 0);
  std::int64_t place = offset;
  for (std::int64_t i = 0; i < all; ++i) {
    body(data->at(std::size_t(place)));
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      place += strides[axis];
      if (++at[axis] < sizes[axis]) break;
      place -= sizes[axis] * strides[axis];
      at[axis] = 0;
    }
  }
}

std::vector<double> Constant::values() const {
  std::vector<double> out;
  out.reserve(std::size_t(count()));
  each([&](const double& value) { out.push_back(value); });
  return out;
}

Constant Constant::expanded(const Sizes& to) const {
  if (to.size() < sizes.size()) fail(Exit::data, "repeats a constant to fewer axes");
  Constant out = *this;
  out.sizes.insert(out.sizes.begin(), to.size() - sizes.size(), 1);
  out.strides.insert(out.strides.begin(), to.size() - sizes.size(), 0);
  for (std::size_t axis = 0; axis < to.size(); ++axis) {
    if (to[axis] == -1 || to[axis] == out.sizes[axis]) continue;
    if (out.sizes[axis] != 1) fail(Exit::data, "repeats an axis of a constant that has several elements");
    out.sizes[axis] = to[axis];
    out.strides[axis] = 0;
  }
  checked_count(out.sizes);
  return out;
}

Constant Constant::reshaped(const Sizes& to) const {
  Sizes known = to;
  const auto unknown = std::ranges::find(known, -1);
  if (unknown != known.end()) {
    *unknown = 1;
    const std::int64_t others = checked_count(known);
    if (others == 0) fail(Exit::data, "reshapes a constant to no elements");
    *unknown = count() / others;
  }
  if (checked_count(known) != count()) fail(Exit::data, "reshapes a constant to another number of elements");
  Constant out = strides == dense_strides(sizes) ? *this : copy();
  out.sizes = known;
  out.strides = dense_strides(known);
  return out;
}

}  // namespace millrace::pt2
