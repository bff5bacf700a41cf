#include "millrace/comm/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace millrace {
namespace {

volatile std::sig_atomic_t seen = 0;

void on_signal(int signal) {
  if (signal == SIGINT && seen == SIGINT) ::_exit(130);
  seen = signal;
}

}  // namespace

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGUSR2, SIGTERM, SIGINT}) ::sigaction(signal, &action, nullptr);
}

int stop_signal() { return seen; }
void clear_stop_signal() { seen = 0; }

}  // namespace millrace
