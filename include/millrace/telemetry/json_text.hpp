// The text of JSON that holds words from outside: paths, the environment, names of hosts.
#pragma once
#include <string>

namespace millrace {

// For any nlohmann::json. Bytes that are no UTF-8 become U+FFFD, where dump() would throw: a job's name in Latin-1 must
// not end a run. indent as dump()'s; -1: one line.
template <class Json>
std::string json_text(const Json& j, int indent = -1) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace millrace
