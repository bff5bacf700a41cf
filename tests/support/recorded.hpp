// What PyTorch computed, as tests/parity/record.py recorded it: in tests/parity/recorded, or in the folder that the
// environment variable MILLRACE_PARITY names (`make parity`).
#pragma once
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace::test {

inline nlohmann::json recorded(const std::string& name) {
  const char* folder = std::getenv("MILLRACE_PARITY");
  std::ifstream file((folder ? folder : std::string(MILLRACE_SOURCE_DIR) + "/tests/parity/recorded") + ("/" + name));
  return nlohmann::json::parse(file);
}

}  // namespace millrace::test
