#include "data/read/mapped_copy.hpp"

#include <ucontext.h>

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

namespace millrace {
namespace {

thread_local sigjmp_buf back;
thread_local volatile std::sig_atomic_t copying = 0;
thread_local sigset_t blocked;  // by the thread, before the signal
struct sigaction before;

// Raised by the copy itself, so leaving it by a jump is as good as between two instructions.
void on_bus_error(int number, siginfo_t*, void* context) {
  if (copying) {
    blocked = static_cast<const ucontext_t*>(context)->uc_sigmask;
    siglongjmp(back, 1);
  }
  ::sigaction(SIGBUS, &before, nullptr);
  ::raise(number);
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGBUS, &action, &before);
}

}  // namespace

bool copy_mapped(void* to, const void* from, std::size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, install);
  if (sigsetjmp(back, 0) != 0) {  // without the mask of signals, which would be a system call each time
    copying = 0;
    ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    return false;
  }
  copying = 1;
  std::memcpy(to, from, bytes);
  copying = 0;
  return true;
}

}  // namespace millrace
