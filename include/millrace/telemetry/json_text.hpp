// JSON text that may contain words from outside: paths, environment variables, host names.
#pragma once
#include <string>

namespace millrace {

// The text of any nlohmann::json. Bytes that are not UTF-8 become U+FFFD. dump() would throw there, but a job name in
// Latin-1 must not end a run. indent: as for dump(); -1: one line.
template <class Json>
std::string json_text(const Json& j, int indent = -1) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace millrace
