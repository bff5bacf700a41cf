// Requests to stop: SIGUSR2, SIGTERM and SIGINT set a flag (a second SIGINT ends the process at once). Local to the
// rank; the trainer makes the ranks agree.
#pragma once

namespace millrace {

void install_stop_signals();
int stop_signal();         // 0, or the signal seen
void clear_stop_signal();  // tests

}  // namespace millrace
