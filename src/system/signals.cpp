#include "millrace/system/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <thread>

namespace millrace {
namespace {

constexpr int stop_signals[] = {SIGUSR2, SIGTERM, SIGINT};
volatile std::sig_atomic_t received = 0, continued = 0;

void on_signal(int signal) {
  if (signal == SIGCONT) {
    continued = continued + 1;
    return;
  }
  if (signal == SIGINT && received == SIGINT) ::_exit(130);
  received = signal;
}

sigset_t handled_signals() {
  sigset_t out;
  sigemptyset(&out);
  sigaddset(&out, SIGCONT);
  for (const int signal : stop_signals) sigaddset(&out, signal);
  return out;
}

}  // namespace

void prepare_signals() {
  const sigset_t handled = handled_signals();
  ::pthread_sigmask(SIG_BLOCK, &handled, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
}

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : stop_signals) ::sigaction(signal, &action, nullptr);
  ::sigaction(SIGCONT, &action, nullptr);
}

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void receive_stop_signals_in_thread() {
  const sigset_t handled = handled_signals();
  ::pthread_sigmask(SIG_BLOCK, &handled, nullptr);  // threads inherit it
  std::thread([handled] {
    ::pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);
    for (;;) ::pause();
  }).detach();
}

int stop_signal() { return received; }
int continuations() { return continued; }
void clear_stop_signal() { received = 0; }

}  // namespace millrace
