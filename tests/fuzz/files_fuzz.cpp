// Damaged HDF5 files, opened, listed and read as in training. A separate process reads each file, because the HDF5
// library itself may crash, hang or use up the memory (1.10 has published flaws). These cases are counted, but are not
// findings. A crash is a finding if the innermost function, apart from the C library's and the sanitizer's, belongs to
// millrace. A process that ends normally returns its coverage counters, so that libFuzzer keeps inputs that reach new
// code, but no crashes.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <vector>

#include "fuzz.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace {

const std::span<char> covered = millrace::fuzz::covered();

// Memory of the size of `covered` that this process shares with the processes that it forks.
char* shared_counters() {
  void* const map = ::mmap(nullptr, covered.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) std::abort();
  return static_cast<char*>(map);
}

constexpr int library_hangs = 93, was_read = 94;  // exit codes of the forked process; those of libFuzzer are around 70
int library_crashes = 0, library_hang_count = 0, inputs = 0, inputs_read = 0;

void print_counts() {
  std::fprintf(stderr, "HDF5 itself: %d crashes, %d hangs in %d inputs, %d of them read\n", library_crashes,
               library_hang_count, inputs, inputs_read);
}

// A file on disk: HDF5 needs its real path, which a file in memory does not have.
const std::string& path() {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("millrace-fuzz-" + std::to_string(::getpid()) + ".h5")).string();
  return path;
}

bool in_library(const void* frame) {
  Dl_info info;
  return ::dladdr(frame, &info) && info.dli_fname && std::strstr(info.dli_fname, "libhdf5");
}

// After the time limit: finds out whether the endless loop is in HDF5.
void at_limit(int) {
  void* frames[64];
  const int count = ::backtrace(frames, 64);
  for (int i = 0; i < count; ++i)
    if (in_library(frames[i])) ::_exit(library_hangs);
  std::abort();
}

// Reads the file as training does. Returns whether it was accepted as a data set, so that samples were read.
bool read_as_training() {
  using namespace millrace;
  bool read = false;
  fuzz::refuses_or_works([&] {
    const auto world = solo_world();
    DataOptions options;
    options.paths = {path()};
    options.decode.resize = 8;
    const ShardIndex index = index_shards(*world, options);
    if (index.sample_bytes() > (1 << 16)) return;
    const auto source = make_source(*world, index, Reader::automatic);
    std::vector<char> x(index.sample_bytes() + 1), y(std::size_t(index.y.target.count()) * 4 + 8);
    for (std::int64_t id = 0; id < std::min<std::int64_t>(index.rows, 12); ++id)
      fuzz::refuses_or_works([&] { source->read({&id, 1}, x.data(), y.data()); });
    read = true;
  });
  return read;
}

constexpr const char* in_module = " module ";  // part of each frame in a report. The default format omits the
                                               // module if the symbols of a library are installed

// Whether the first frame of a report that belongs to HDF5 or to millrace belongs to HDF5. Frames of the sanitizer and
// of other libraries are skipped.
bool library_crashed(const std::string& report) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t module = line.find(in_module);
    if (line.find("    #") != 0 || module == line.npos) continue;
    if (line.find("libhdf5", module) != line.npos) return true;
    if (line.find("millrace::") < module) return false;
  }
  return false;
}

}  // namespace

extern "C" const char* __asan_default_options() { return "stack_trace_format='    #%n %p %F %L module %m'"; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::ofstream(path(), std::ios::binary).write(reinterpret_cast<const char*>(data), std::streamsize(size));
  static char* const counters = shared_counters();
  std::memset(counters, 0, covered.size());
  int report[2];
  if (::pipe(report) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(report[1], 2), ::close(report[0]), ::close(report[1]);
    if (::chdir("/") != 0) ::_exit(1);  // prevents libFuzzer in this process from saving inputs; the parent decides
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::signal(SIGALRM, at_limit), ::alarm(5);
    const bool read = read_as_training();
    std::memcpy(counters, covered.data(), covered.size());
    ::_exit(read ? was_read : 0);
  }
  ::close(report[1]);
  std::string output;
  char block[4096];
  for (ssize_t n;
       (n = ::read(report[0], block, sizeof block)) > 0 || (n < 0 && errno == EINTR);)  // EINTR: libFuzzer's timer
    output.append(block, std::size_t(std::max<ssize_t>(n, 0)));
  ::close(report[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  ::unlink(path().c_str());
  ++inputs;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  inputs_read += code == was_read;
  if (inputs % 100 == 0) print_counts();
  if (code == library_hangs)
    ++library_hang_count;
  else if (code != 0 && code != was_read && library_crashed(output))
    ++library_crashes;
  else if (code != 0 && code != was_read) {
    std::fprintf(stderr, "%s\n", output.c_str());
    print_counts();
    std::abort();
  }
  std::memcpy(covered.data(), counters, covered.size());  // replaces the counters of this process
  return 0;
}
