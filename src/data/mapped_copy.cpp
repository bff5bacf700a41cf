#include "mapped_copy.hpp"

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

namespace millrace {
namespace {

thread_local sigjmp_buf back;
thread_local volatile std::sig_atomic_t copying = 0;
struct sigaction before;

// Raised by the copy itself, so leaving it by a jump is as good as between two instructions.
void on_bus_error(int number) {
  if (copying) siglongjmp(back, 1);
  ::sigaction(SIGBUS, &before, nullptr);
  ::raise(number);
}

void install() {
  struct sigaction action {};
  action.sa_handler = on_bus_error;
  action.sa_flags = SA_NODEFER | SA_ONSTACK;  // the jump leaves the signal unblocked
  ::sigaction(SIGBUS, &action, &before);
}

}  // namespace

bool copy_mapped(void* to, const void* from, std::size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, install);
  if (sigsetjmp(back, 0) != 0) {
    copying = 0;
    return false;
  }
  copying = 1;
  std::memcpy(to, from, bytes);
  copying = 0;
  return true;
}

}  // namespace millrace
