// An elementwise function of sample values. It is applied after scale and offset and before normalization.
#pragma once
#include <cmath>
#include <string_view>

namespace millrace {

enum class Transform { none, log1p };  // log1p: ln(1 + v), for v > -1

inline const char* name_of(Transform t) { return t == Transform::log1p ? "log1p" : "none"; }
inline double apply(Transform t, double v) { return t == Transform::log1p ? std::log1p(v) : v; }

}  // namespace millrace
