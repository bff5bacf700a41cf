// Constants of an operation, which copies of its Spec share.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace millrace {

template <class T>
class Table {
 public:
  Table() : Table(std::vector<T>{}) {}
  Table(std::initializer_list<T> values) : Table(std::vector<T>(values)) {}
  explicit Table(std::vector<T> values) : values_(std::make_shared<const std::vector<T>>(std::move(values))) {}
  std::int64_t size() const { return std::int64_t(values_->size()); }
  T operator[](std::int64_t i) const { return (*values_)[std::size_t(i)]; }
  const std::vector<T>& values() const { return *values_; }

 private:
  std::shared_ptr<const std::vector<T>> values_;
};

// The places of each value in a table: those of value v are places[begin[v]] to places[begin[v + 1] - 1], in order.
struct Places {
  std::vector<std::int32_t> begin, places;
  // Negative values of the table are left out; the others are below `values`.
  Places(const Table<std::int32_t>&, std::int64_t values);
};

}  // namespace millrace
