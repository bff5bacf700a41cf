#include "cpu/choice/waited.hpp"

#include <fstream>
#include <string>

namespace millrace::cpu {

namespace fs = std::filesystem;

double waited_seconds(const std::vector<int>& threads, const fs::path& root) {
  double sum = 0;
  bool known = false;
  for (const int thread : threads) {
    // ns on a core, ns ready to run without one, turns
    std::ifstream in(root / "proc/self/task" / std::to_string(thread) / "schedstat");
    double ran = 0, waited = 0;
    if (!(in >> ran >> waited)) continue;  // it has ended
    sum += waited * 1e-9;
    known = true;
  }
  return known ? sum : -1;
}

}  // namespace millrace::cpu
