// Tables that pair the values of an enum with names, or with the values of a library's enum. Example:
//
//   constexpr TableRow<DType, ncclDataType_t> types[] = {{DType::f32, ncclFloat32}, {DType::bf16, ncclBfloat16}};
//   if (const auto* type = find_value(types, dtype)) use(*type);
#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>

namespace millrace {

template <class Key, class Value>
struct TableRow {
  Key key;
  Value value;
};

// The value in the row with this key. Null if there is none.
template <class Key, class Value, std::size_t count>
constexpr const Value* find_value(const TableRow<Key, Value> (&table)[count], Key key) {
  const auto row = std::find_if(std::begin(table), std::end(table), [&](const auto& r) { return r.key == key; });
  return row == std::end(table) ? nullptr : &row->value;
}

// The same, with a value for keys that the table lacks.
template <class Key, class Value, std::size_t count>
constexpr Value find_value(const TableRow<Key, Value> (&table)[count], Key key, Value otherwise) {
  const Value* found = find_value(table, key);
  return found ? *found : otherwise;
}

}  // namespace millrace
