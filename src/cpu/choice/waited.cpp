#include "cpu/choice/waited.hpp"

#include <fstream>

namespace millrace::cpu {

namespace fs = std::filesystem;

double waited_seconds(const fs::path& root) {
  double sum = 0;
  bool known = false;
  std::error_code failed;
  for (fs::directory_iterator thread(root / "proc/self/task", failed), end; !failed && thread != end;
       thread.increment(failed)) {
    std::ifstream in(thread->path() / "schedstat");  // ns on a core, ns ready to run without one, turns
    double ran = 0, waited = 0;
    if (!(in >> ran >> waited)) continue;  // it has ended
    sum += waited * 1e-9;
    known = true;
  }
  return known ? sum : -1;
}

}  // namespace millrace::cpu
