#include "millrace/system/first_report.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "millrace/system/launcher.hpp"

namespace millrace {

namespace {

// "-JOB-HOST", by the environment; "" if the job is unknown. The host is a number if hosts are simulated.
struct JobName {
  char text[96] = "";
  JobName() {
    if (const char* job = std::getenv("PMIX_NAMESPACE")) {
      add(job);
    } else if (std::getenv("SLURM_JOB_ID") && std::getenv("SLURM_STEP_ID")) {
      add(std::getenv("SLURM_JOB_ID"));
      add(std::getenv("SLURM_STEP_ID"));
    } else {
      return;
    }
    char host[12] = "";
    std::to_chars(host, host + sizeof host - 1, simulated_host());
    add(host);
  }
  void add(const char* part) {
    const std::size_t at = std::strlen(text);
    if (at + 1 >= sizeof text) return;
    text[at] = '-';
    std::strncpy(text + at + 1, part, sizeof text - at - 2);
  }
};

// Whether this is the first process of its job on this host.
bool is_first_process() {
  const JobName job;
  if (!*job.text) return true;
  // A socket in the abstract namespace: no file, one owner, gone with the process. Its name begins with a zero byte.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  constexpr char prefix[] = "\0millrace";
  constexpr std::size_t length = sizeof prefix - 1;
  const std::size_t more = std::strlen(job.text);
  static_assert(length + sizeof job.text <= sizeof address.sun_path);
  std::memcpy(address.sun_path, prefix, length);
  std::memcpy(address.sun_path + length, job.text, more);
  const int held = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);  // until the process ends
  if (held < 0 || ::bind(held, reinterpret_cast<const sockaddr*>(&address),
                         socklen_t(offsetof(sockaddr_un, sun_path) + length + more)) == 0)
    return true;
  const bool taken = errno == EADDRINUSE;
  ::close(held);
  return !taken;
}

std::atomic<Reporter> holder{};  // of this process

}  // namespace

bool claim_report_of_host(Reporter who) noexcept {
  Reporter now{};
  if (!holder.compare_exchange_strong(now, who)) return now == who;
  const int error = errno;
  const bool first = is_first_process();
  errno = error;
  if (!first) holder = {};
  return first;
}

}  // namespace millrace
