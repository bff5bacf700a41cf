// The threads that compute. Each thread that runs parallel loops has its own team; it is member 0. Parts of a loop are
// claimed: a member begins with its own, neighbouring parts and then takes those that others have not begun. So the
// calling thread waits only for parts in the middle of which another member is, never for a thread that has not woken
// up or whose core is busy with another program.
//
// oneDNN's OpenMP regions run on the same team: see openmp_entry_points.cpp. Those with barriers need all members.
#pragma once
#include <vector>

namespace millrace::cpu {

// The number of threads of loops that the calling thread begins. At first that of OMP_NUM_THREADS, or of the cores.
int thread_count();
void set_thread_count(int threads);
// The member of the team that runs the calling part: below thread_count() and the number of parts; 0 outside of loops.
// Parts that run at the same time have different numbers.
int thread_number();

// While it lives, the calling thread computes alone: thread_count() is 1, and thread_number() 0. For primitives and ops
// that run within a part, when they are made and when they run.
class Alone {
 public:
  Alone();
  Alone(const Alone&) = delete;
  ~Alone();

 private:
  int count_, member_;
};

inline constexpr int max_parts = 65'535;  // of a loop
using RunPart = void (*)(const void* body, int part);
// Runs the parts 0 to parts - 1 (at most max_parts) on `threads` members, and returns when all have ended. Within a
// part of another loop, they run on the calling thread. Parts must not throw. At most `threads` parts may wait for each
// other.
void run_parts(int parts, int threads, RunPart, const void* body);
bool in_parallel_loop();  // whether the calling thread runs a part of several

// The threads that run loops of thread_count() members for the calling thread, itself first, as Linux numbers them.
// Starts those that do not live yet. Not within a part.
std::vector<int> team_threads();

// From now on, the calling thread takes float numbers below 2^-126 (denormal numbers) for 0, as operands and as
// results. Threads with a team do so, and all members of teams. Processors compute with such numbers up to a hundred
// times as slowly, and a softmax whose probabilities are close to 0 and 1 makes many. Only on x86-64.
void take_denormals_for_zero();

// What the teams of all threads have done. For tests and measurements.
struct ThreadStats {
  long loops = 0, taken_over = 0;  // loops of several parts; parts that another member than their own computed
};
ThreadStats thread_stats();

}  // namespace millrace::cpu
