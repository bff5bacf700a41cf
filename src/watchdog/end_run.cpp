#include "watchdog/end_run.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"

namespace millrace::watchdog {
namespace {

using namespace std::chrono_literals;

constexpr auto for_record = longest_end / 2, for_abort = longest_end / 2;

std::string utc_now() {
  const std::time_t t = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&t));
  return text;
}

// Runs f in a thread and waits for it, but not longer than `most`.
template <class F>
void try_for(std::chrono::milliseconds most, F f) {
  auto done = std::make_shared<std::promise<void>>();
  auto future = done->get_future();
  try {
    std::thread([f = std::move(f), done] {
      try {
        f();
      } catch (...) {  // the run ends in any case
      }
      done->set_value();
    }).detach();
  } catch (const std::system_error&) {  // no thread is free
    return;
  }
  future.wait_for(most);
}

}  // namespace

void end_silently(const std::vector<int>& to_kill) {
  // mpirun kills all ranks, and would take the code of a killed rank as that of the run.
  if (!std::getenv("OMPI_COMM_WORLD_RANK"))
    for (const int pid : to_kill) ::kill(pid, SIGKILL);
  ::_exit(int(Exit::comm));
}

void end_run(const Verdict& verdict, const std::vector<Position>& all, const std::vector<int>& to_kill,
             const std::filesystem::path& folder, const std::function<void()>& abort) {
  const std::string line = describe(verdict);
  log::error(line);
  if (!folder.empty())
    try_for(for_record, [path = folder / "flight.json", text = flight_record(line, all, utc_now())] {
      write_file_atomically(path, text);
    });
  if (abort) try_for(for_abort, abort);
  end_silently(to_kill);
}

}  // namespace millrace::watchdog
