// Requests to stop: SIGUSR2, SIGTERM and SIGINT set a flag (a second SIGINT ends the process at once). Local to the
// rank; the trainer makes the ranks agree.
#pragma once

namespace millrace {

void install_stop_signals();
// Call once, in main, before other threads start: from then on a thread of its own receives these signals, and no
// other. A handler writes its frame below the stack pointer of the thread that it interrupts; generated code of oneDNN
// 2.6 lets that point into the heap (measured: 1 of 8 runs that were signalled in the middle ended with a damaged
// heap).
void receive_stop_signals_in_thread();
int stop_signal();         // 0, or the signal seen
void clear_stop_signal();  // tests

}  // namespace millrace
