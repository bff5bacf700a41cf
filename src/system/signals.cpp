#include "millrace/system/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <thread>

namespace millrace {
namespace {

constexpr int stop_signals[] = {SIGUSR2, SIGTERM, SIGINT};
volatile std::sig_atomic_t received = 0;

void on_signal(int signal) {
  if (signal == SIGINT && received == SIGINT) ::_exit(130);
  received = signal;
}

sigset_t stop_signal_set() {
  sigset_t stop;
  sigemptyset(&stop);
  for (const int signal : stop_signals) sigaddset(&stop, signal);
  return stop;
}

}  // namespace

void prepare_signals() {
  const sigset_t stop = stop_signal_set();
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
}

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : stop_signals) ::sigaction(signal, &action, nullptr);
}

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void receive_stop_signals_in_thread() {
  const sigset_t stop = stop_signal_set();
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);  // threads inherit it
  std::thread([stop] {
    ::pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
    for (;;) ::pause();
  }).detach();
}

int stop_signal() { return received; }
void clear_stop_signal() { received = 0; }

}  // namespace millrace
