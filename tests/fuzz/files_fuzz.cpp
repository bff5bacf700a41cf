// Damaged HDF5 files, opened, listed and read as training does, each in a process of its own: the HDF5 library itself
// may crash, hang or ask for all memory on them (1.10 has published flaws), which is counted and is no finding here. It
// is one where the innermost function that is not the C library's or the sanitizer's is millrace's own. Learns nothing
// from one input to the next: it mutates the seeds.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "fuzz.hpp"
#include "millrace/data/source.hpp"

namespace {

constexpr int library_hangs = 93, was_read = 94;  // exit codes of the process; libFuzzer's own are around 70
int library_crashes = 0, library_hang_count = 0, inputs = 0, inputs_read = 0;

void tell() {
  std::fprintf(stderr, "HDF5 itself: %d crashes, %d hangs in %d inputs, %d of them read\n", library_crashes,
               library_hang_count, inputs, inputs_read);
}

// On a disk: HDF5 asks for the real path, which a file in memory has not.
const std::string& path() {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("millrace-fuzz-" + std::to_string(::getpid()) + ".h5")).string();
  return path;
}

bool in_library(const void* frame) {
  Dl_info info;
  return ::dladdr(frame, &info) && info.dli_fname && std::strstr(info.dli_fname, "libhdf5");
}

// After the time limit: whose loop it is.
void at_limit(int) {
  void* frames[64];
  const int count = ::backtrace(frames, 64);
  for (int i = 0; i < count; ++i)
    if (in_library(frames[i])) ::_exit(library_hangs);
  std::abort();
}

// Whether the file was taken for a data set, and its samples asked for.
bool train_on() {
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
    std::vector<char> x(index.sample_bytes() + 1), y(std::size_t(index.target.count()) * 4 + 8);
    for (std::int64_t id = 0; id < std::min<std::int64_t>(index.rows, 12); ++id)
      fuzz::refuses_or_works([&] { source->read({&id, 1}, x.data(), y.data()); });
    read = true;
  });
  return read;
}

// Of lines such as "    #0 0x55d0c2 in H5F__accum_read (/usr/lib/libhdf5_openmpi.so.103+0x1234)" the first that says
// who it was: not the sanitizer, the allocator, or a library that others call.
bool library_crashed(const std::string& report) {
  const auto has = [](const std::string& line, std::initializer_list<const char*> words) {
    for (const char* word : words)
      if (line.find(word) != std::string::npos) return true;
    return false;
  };
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("    #") != 0) continue;
    if (has(line, {"libhdf5"})) return true;
    if (!has(line,
             {"_asan_", "_interceptor_", "_sanitizer_", "__sanitizer", "fuzzer::", "operator new", "operator delete",
              "malloc", "calloc", "realloc", "libc.so", "libpthread", "libstdc++", "libz.so", "libsz.so", "libaec"}))
      return false;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::ofstream(path(), std::ios::binary).write(reinterpret_cast<const char*>(data), std::streamsize(size));
  int report[2];
  if (::pipe(report) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(report[1], 2), ::close(report[0]), ::close(report[1]);
    if (::chdir("/") != 0) ::_exit(1);  // libFuzzer in this process keeps no inputs then: the other judges
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::signal(SIGALRM, at_limit), ::alarm(5);
    ::_exit(train_on() ? was_read : 0);
  }
  ::close(report[1]);
  std::string said;
  char block[4096];
  for (ssize_t n; (n = ::read(report[0], block, sizeof block)) > 0;) said.append(block, std::size_t(n));
  ::close(report[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  ::unlink(path().c_str());
  ++inputs;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  inputs_read += code == was_read;
  if (inputs % 100 == 0) tell();
  if (code == 0 || code == was_read) return 0;
  if (code == library_hangs)
    ++library_hang_count;
  else if (library_crashed(said))
    ++library_crashes;
  else
    std::fprintf(stderr, "%s\n", said.c_str()), tell(), std::abort();
  return 0;
}
