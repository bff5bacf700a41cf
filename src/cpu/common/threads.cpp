#include "cpu/common/threads.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

#include "cpu/common/openmp_entry_points.hpp"
#include "cpu/common/team.hpp"
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace millrace::cpu {
namespace {

int default_thread_count() {
  static const int count = [] {
    use_own_openmp_entry_points();
    const char* given = std::getenv("OMP_NUM_THREADS");
    const long number = given ? std::strtol(given, nullptr, 10) : 0;
    return int(number > 0 ? std::min(number, 1024L) : std::max(1L, long(std::thread::hardware_concurrency())));
  }();
  return count;
}

thread_local int count_of_thread = 0;  // 0: default_thread_count()
thread_local std::unique_ptr<Team> team_of_thread;

Team& team_of(int members) {
  if (!team_of_thread || team_of_thread->size() < members) {
    team_of_thread.reset();
    take_denormals_for_zero();
    team_of_thread = std::make_unique<Team>(members);
  }
  return *team_of_thread;
}

}  // namespace

int thread_count() { return count_of_thread > 0 ? count_of_thread : default_thread_count(); }
void set_thread_count(int threads) { count_of_thread = std::max(1, threads); }
int thread_number() { return Team::member(); }
Alone::Alone() : count_(count_of_thread), member_(Team::set_member(0)) { count_of_thread = 1; }
Alone::~Alone() {
  count_of_thread = count_;
  Team::set_member(member_);
}
bool in_parallel_loop() { return Team::in_loop(); }
std::vector<int> team_threads() { return team_of(thread_count()).threads(thread_count()); }
void take_denormals_for_zero() {
#ifdef __x86_64__
  constexpr unsigned results = 0x8000, operands = 0x40;  // flush to zero, denormals are zeros
  _mm_setcsr(_mm_getcsr() | results | operands);
#endif
}
ThreadStats thread_stats() { return Team::stats(); }

void run_parts(int parts, int threads, RunPart run, const void* body) {
  const int members = std::min(parts, threads);
  if (members <= 1 || Team::in_loop()) {
    for (int part = 0; part < parts; ++part) run(body, part);
    return;
  }
  team_of(members).run({run, body, parts, members, thread_count()});
}

}  // namespace millrace::cpu
