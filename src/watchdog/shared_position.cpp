#include "watchdog/shared_position.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "millrace/system/launcher.hpp"

namespace millrace::watchdog {
namespace {

constexpr std::size_t bytes = 4096;
constexpr const char* name = "millrace-position";

std::shared_ptr<SharedPosition> mapped(int file) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (at == MAP_FAILED) return nullptr;
  return {static_cast<SharedPosition*>(at), [](SharedPosition* p) { ::munmap(p, bytes); }};
}

// The value of a variable in the environment of a process; "" without it.
std::string variable(const std::string& environment, const std::string& key) {
  const std::string text = '\0' + environment, begin = '\0' + key + '=';
  const auto at = text.find(begin);
  return at == text.npos ? "" : std::string(text.c_str() + at + begin.size());
}

// The descriptor of the position in another process; -1 without one.
int position_file_of(int pid) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), none))
    if (std::filesystem::read_symlink(entry.path(), none).string().starts_with(fmt::format("/memfd:{}", name)))
      return std::atoi(entry.path().filename().c_str());
  return -1;
}

}  // namespace

Position copy_of(const SharedPosition& p, int pid) {
  Position out;
  out.rank = p.rank;
  out.node = p.node;
  out.pid = pid;
  out.part = p.part;
  out.wait = p.wait;
  out.file_part = p.file_part;
  out.step = p.step_plus_1 - 1;
  out.waits = p.waits;
  const std::uint64_t counted = p.quiet_beats;
  out.quiet = p.quiet;
  if (p.beats != counted) out.quiet = 0;
  out.file_quiet = p.file_quiet;
  std::memcpy(out.host, p.host, sizeof out.host);
  return out;
}

MappedPosition make_position() {
  MappedPosition out;
  out.pid = ::getpid();
  out.file = ::memfd_create(name, MFD_CLOEXEC);
  if (out.file >= 0 && ::ftruncate(out.file, bytes) != 0) {
    ::close(out.file);
    out.file = -1;
  }
  out.at = mapped(out.file);
  return out;
}

MappedPosition open_position(int pid, int file) {
  MappedPosition out{nullptr, file, pid};
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, file);
  std::error_code none;
  if (file < 0 || !std::filesystem::read_symlink(path, none).string().starts_with(fmt::format("/memfd:{}", name)))
    return out;
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return out;
  out.at = mapped(opened);
  ::close(opened);
  return out;
}

std::vector<JobProcess> find_job() try {
  std::map<int, JobProcess> found;
  const char* const job = std::getenv("PMIX_NAMESPACE");
  if (!job) return {};
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string rank = variable(text, "PMIX_RANK");
    if (rank.empty() || variable(text, "PMIX_NAMESPACE") != job) continue;
    if (const int simulated = ranks_of_simulated_host(); simulated > 0)
      if (std::atoi(rank.c_str()) / simulated != simulated_host()) continue;
    JobProcess one{std::atoi(rank.c_str()), open_position(pid, position_file_of(pid))};
    one.position.pid = pid;
    auto& known = found.try_emplace(one.rank, one).first->second;
    if (one.position.at) known = one;  // otherwise it may be a script that started the program
  }
  std::vector<JobProcess> out;
  for (auto& [rank, one] : found) out.push_back(std::move(one));
  return out;
} catch (const std::filesystem::filesystem_error&) {  // a process ended meanwhile
  return {};
}

}  // namespace millrace::watchdog
