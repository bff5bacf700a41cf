#pragma once

namespace millrace {

inline constexpr const char* version = "0.1.0";

}  // namespace millrace
