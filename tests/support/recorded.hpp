// What PyTorch computed, as tests/parity/record.py recorded it: in tests/parity/recorded, or in the folder that the
// environment variable MILLRACE_PARITY names (`make parity`).
#pragma once
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "millrace/base/files.hpp"
#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace millrace::test {

inline nlohmann::json recorded(const std::string& name) {
  const char* folder = std::getenv("MILLRACE_PARITY");
  std::ifstream file((folder ? folder : std::string(MILLRACE_SOURCE_DIR) + "/tests/parity/recorded") + ("/" + name));
  return nlohmann::json::parse(file);
}

// Whether the processor has AMX, whose sums of bf16 products are rounded in another order.
inline bool has_amx() {
#ifdef __x86_64__
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 24 & 1;
#else
  return false;
#endif
}

// Numbers of SplitMix64 (Steele et al. 2014) by their index, a sequence for each name.
class Sequence {
 public:
  explicit Sequence(const std::string& name) : begin_(std::uint64_t(crc32(name.data(), name.size())) << 32) {}
  double uniform(std::int64_t index) const { return double(mixed(index) >> 40) / (1 << 23) - 1; }  // in [-1, 1)
  std::int64_t below(std::int64_t limit, std::int64_t index) const { return std::int64_t(mixed(index) >> 33) % limit; }

 private:
  std::uint64_t mixed(std::int64_t index) const {
    std::uint64_t z = std::uint64_t(index + 1) * 0x9E3779B97F4A7C15 + begin_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  std::uint64_t begin_;
};

}  // namespace millrace::test
