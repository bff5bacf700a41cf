// Tensors that do not depend on the samples: they are computed while a network is translated. As in PyTorch, a view
// shares its elements with what it is a view of, so writing to one changes both.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "model/pt2/axes.hpp"

namespace millrace::pt2 {

struct Constant {
  enum class Type { boolean, integer, real };
  std::shared_ptr<std::vector<double>> data;
  Sizes sizes, strides;  // in elements; an axis of the rows has one element, as all rows have the same values
  std::int64_t offset = 0;
  Type type = Type::real;

  // Error(data): more elements than are computed here (2^24).
  static Constant filled(const Sizes&, double value, Type = Type::real);
  static Constant of(const Sizes&, std::vector<double> values, Type);

  int rank() const { return int(sizes.size()); }
  std::int64_t count() const;
  // In the order of the axes.
  std::vector<double> values() const;
  // Calls body(element) for each place in `data`, in the order of the axes.
  void each(const std::function<void(double&)>& body) const;
  Constant copy() const { return of(sizes, values(), type); }
  // Of these sizes, with axes of extent 1 repeated. Error(data): they do not fit.
  Constant expanded(const Sizes&) const;
  // The same elements in other sizes: a view where they lie side by side, otherwise a copy.
  Constant reshaped(const Sizes&) const;
};

// The number of elements. Error(data): a size is below 0, or there are more than 2^24.
std::int64_t checked_count(const Sizes&);
// The number in this type: 1 for True, and integers without a fraction.
double as_type(double, Constant::Type);
// The sizes of a result of both. Error(data): they do not fit.
Sizes broadcast_sizes(const Sizes&, const Sizes&);
// Extents of constants in the place of those with rows: 1 for the number of rows.
Sizes without_rows(Sizes);

}  // namespace millrace::pt2
