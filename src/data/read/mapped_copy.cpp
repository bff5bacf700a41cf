#include "data/read/mapped_copy.hpp"

#include <ucontext.h>

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

namespace millrace {
namespace {

thread_local sigjmp_buf jump_target;
thread_local volatile std::sig_atomic_t copying = 0;
thread_local sigset_t blocked_signals;  // the signals that the thread blocked before the SIGBUS
struct sigaction previous_action;

// The copy itself raises this signal, so it is safe to leave the handler by a jump.
void on_bus_error(int number, siginfo_t*, void* context) {
  if (copying) {
    blocked_signals = static_cast<const ucontext_t*>(context)->uc_sigmask;
    siglongjmp(jump_target, 1);
  }
  ::sigaction(SIGBUS, &previous_action, nullptr);
  ::raise(number);
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace

bool copy_mapped(void* to, const void* from, std::size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, install);
  if (sigsetjmp(jump_target, 0) != 0) {  // 0: saving the signal mask would cost a system call for each copy
    copying = 0;
    ::pthread_sigmask(SIG_SETMASK, &blocked_signals, nullptr);
    return false;
  }
  copying = 1;
  std::memcpy(to, from, bytes);
  copying = 0;
  return true;
}

}  // namespace millrace
