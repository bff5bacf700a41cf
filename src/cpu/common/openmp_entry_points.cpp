// The functions of libgomp that oneDNN calls, on the threads of threads.hpp. Functions of the program precede those of
// shared libraries, so oneDNN finds these. A region is a loop of as many parts as threads, so its results do not depend
// on which thread runs which part. oneDNN's regions may wait for each other: a region has no more parts than its team
// has members, so each part finds a thread.
//
// If oneDNN uses another OpenMP runtime, its regions do not come here. Outside of a region of this file, the functions
// therefore answer what the runtime's own say. Regions of other libraries go to the runtime, because these may call
// more of its functions than there are here.
#include "cpu/common/openmp_entry_points.hpp"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cpu/common/threads.hpp"

namespace millrace::cpu {

void use_own_openmp_entry_points() {}

namespace {

struct Region {
  void (*run)(void*);
  void* data;
  int parts;
  std::atomic<int> arrived{0}, barriers{0};
};
thread_local Region* region_of_thread = nullptr;
thread_local int part_of_thread = 0;

void run_part(const void* body, int part) {
  Region* const region = static_cast<Region*>(const_cast<void*>(body));
  Region* const outer = region_of_thread;
  const int outer_part = part_of_thread;
  region_of_thread = region;
  part_of_thread = part;
  region->run(region->data);
  region_of_thread = outer;
  part_of_thread = outer_part;
}

// The runtime's own answer; `otherwise` if there is no runtime.
int ask_runtime(int (*function)(), int otherwise) { return function ? function() : otherwise; }
using Question = int (*)();
Question find(const char* name) { return reinterpret_cast<Question>(::dlsym(RTLD_NEXT, name)); }

// By the name of the library that calls, or because oneDNN is linked into this program.
bool calls_from_onednn(const void* caller) {
  thread_local const void* last = nullptr;  // regions of one library come from a few places
  thread_local bool last_is_onednn = false;
  if (caller == last) return last_is_onednn;
  Dl_info library{}, own{};
  last_is_onednn = !::dladdr(caller, &library) || !library.dli_fname || std::strstr(library.dli_fname, "dnnl") ||
                   (::dladdr(reinterpret_cast<const void*>(&use_own_openmp_entry_points), &own) &&
                    library.dli_fbase == own.dli_fbase);
  last = caller;
  return last_is_onednn;
}

}  // namespace
}  // namespace millrace::cpu

#define MR_ENTRY_POINT extern "C" __attribute__((visibility("default")))

using namespace millrace::cpu;

MR_ENTRY_POINT void GOMP_parallel(void (*run)(void*), void* data, unsigned threads, unsigned flags) {
  if (!calls_from_onednn(__builtin_return_address(0))) {
    using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
    static const auto next = reinterpret_cast<Parallel>(::dlsym(RTLD_NEXT, "GOMP_parallel"));
    if (next) return next(run, data, threads, flags);
  }
  const int wanted = threads > 0 ? int(threads) : thread_count();
  Region region{run, data, in_parallel_loop() ? 1 : wanted};
  run_parts(region.parts, region.parts, run_part, &region);
}

MR_ENTRY_POINT void GOMP_barrier() {
  Region* const region = region_of_thread;
  if (!region || region->parts == 1) return;
  const int barrier = region->barriers.load(std::memory_order_acquire);
  if (region->arrived.fetch_add(1) + 1 == region->parts) {
    region->arrived.store(0, std::memory_order_relaxed);
    region->barriers.store(barrier + 1, std::memory_order_release);
  }
  for (int i = 0; region->barriers.load(std::memory_order_acquire) == barrier; ++i)
    if (i >= 1000) ::sched_yield();
}

MR_ENTRY_POINT int omp_get_num_threads() {
  static const Question next = find("omp_get_num_threads");
  return region_of_thread ? region_of_thread->parts : ask_runtime(next, 1);
}

MR_ENTRY_POINT int omp_get_thread_num() {
  static const Question next = find("omp_get_thread_num");
  return region_of_thread ? part_of_thread : ask_runtime(next, 0);
}

MR_ENTRY_POINT int omp_in_parallel() {
  static const Question next = find("omp_in_parallel");
  return in_parallel_loop() || ask_runtime(next, 0);
}

MR_ENTRY_POINT int omp_get_max_threads() { return thread_count(); }

MR_ENTRY_POINT void omp_set_num_threads(int threads) { set_thread_count(threads); }
