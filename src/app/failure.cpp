#include "app/failure.hpp"

#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <new>
#include <thread>

#include "millrace/base/log.hpp"
#include "millrace/comm/position_exchange.hpp"
#include "millrace/config/options.hpp"
#include "millrace/data/cache/shm_folder.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/system/first_report.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<World> world;
std::unique_ptr<World> failure_world;  // a duplicate, for the exchange of failures
std::unique_ptr<PositionExchange> positions;
constexpr auto gather_timeout = 1s;  // a rank that has not reported by then counts as not failed
constexpr auto report_time = 5s;     // whoever reports has ended the run by then

// Nothing here allocates, because memory may be exhausted. The message belongs to the exception, which stays alive.
struct Failure {
  Exit code = Exit::internal;
  const char* message = "terminated without an exception";
};

Failure current_failure() {
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {Exit::internal, "out of memory. lower train.micro_batch, data.prefetch or the number of ranks on a host"};
  } catch (const std::exception& error) {
    return {Exit::internal, error.what()};
  } catch (...) {
    return {Exit::internal, "terminated by an exception of unknown type"};
  }
  return {};
}

volatile std::sig_atomic_t alarm_code;

// Another rank of this host, or the watchdog, reports and ends the run.
[[noreturn]] void wait_for_report(int code) {
  remove_used_shm_folders();
  std::this_thread::sleep_for(report_time);
  world->abort(code);
  std::_Exit(code);
}

// What a rank tells the others: whether it would report, its code and its message.
std::string told(bool reports, const Failure& failure) {
  return fmt::format("{}{} {}", reports ? '!' : ' ', int(failure.code), failure.message);
}

// All ranks failed: prints one message and exits with the code of rank 0.
[[noreturn]] void end_together(std::vector<std::string> all) {
  const bool reports = std::any_of(all.begin(), all.end(), [](const std::string& one) { return one[0] == '!'; });
  for (std::string& one : all) one.erase(0, 1);
  if (!reports) wait_for_report(std::atoi(all.front().c_str()));
  // Most often the others failed for the same reason: a file that all read, or a rank that all waited for.
  const auto others = std::count_if(all.begin(), all.end(), [&](const std::string& one) { return one != all.front(); });
  const std::string more = others ? fmt::format(" (and another error on {} of {} ranks)", others, all.size()) : "";
  log::info("error: " + with_place(all.front().substr(all.front().find(' ') + 1)) + more);
  const int code = std::atoi(all.front().c_str());
  alarm_code = code;
  remove_used_shm_folders();
  // Finalizing MPI may hang if a library left something open, and may crash a thread that hangs in MPI-IO. An alarm and
  // signal handlers end the process then. A thread that calls MPI afterwards would end it with a code of MPI.
  for (const int signal : {SIGALRM, SIGSEGV, SIGBUS, SIGABRT}) std::signal(signal, [](int) { std::_Exit(alarm_code); });
  ::alarm(2);
  if (failure_world)
    failure_world->barrier();  // rank 0 has printed: mpirun may kill it as soon as another rank has gone
  (void)mpi_call_mutex().try_lock_for(100ms);  // never unlocked
  io::close_hdf5_for_other_threads();
  failure_world.reset();
  world.reset();
  std::_Exit(code);
}

// This rank failed, and the others did not report a failure in time or could not be asked.
[[noreturn]] void end_alone(const Failure& failure, bool reports) {
  if (!reports) wait_for_report(int(failure.code));
  try {
    log::error(with_place(failure.message));
  } catch (...) {
    for (const char* part : {"error: ", failure.message, "\n"})
      [[maybe_unused]] const auto done = ::write(STDERR_FILENO, part, std::strlen(part));
  }
  remove_used_shm_folders();
  ::usleep(300'000);  // this process holds the claim while the other ranks fail for the same reason
  world->abort(int(failure.code));
  std::_Exit(int(failure.code));
}

[[noreturn]] void on_terminate() {
  static std::atomic<bool> ending{false};
  if (ending.exchange(true))
    for (;;) ::pause();  // another thread of this rank is ending the program
  const bool reports = claim_report_of_host(Reporter::failure);
  const Failure failure = current_failure();
  std::future<std::vector<std::string>> all;  // never destroyed: that would wait for the other ranks
  try {
    const std::string mine = told(reports, failure);
    if (world->size() == 1) end_together({mine});
    all = std::async(std::launch::async, [&] { return failure_world->gather(mine); });
    if (all.wait_for(gather_timeout) == std::future_status::ready) end_together(all.get());
    end_alone(failure, reports);
  } catch (...) {  // no thread or memory is left to ask the others, or MPI fails
    end_alone(failure, reports);
  }
}

struct sigaction previous_handlers[NSIG];  // installed by MPI

// HDF5 crashes on some damaged files without a message: this handler names the file. Other crashes go to the previous
// handler.
void on_crash(int signal) {
  const char* file = io::current_hdf5_file();
  if (!file) {
    ::sigaction(signal, &previous_handlers[signal], nullptr);
    ::raise(signal);
    return;
  }
  for (const char* part : {"error: the HDF5 library crashed on ", file, ": it is damaged. copy or write it again\n"})
    [[maybe_unused]] const auto done = ::write(STDERR_FILENO, part, std::strlen(part));
  ::_exit(int(Exit::data));
}

// MPI uses pages of its shared memory long after it created the files. If /dev/shm is full at that time, the kernel
// sends SIGBUS.
void on_bus_error(int signal) {
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) != 0 || shm.f_bavail > 0) return on_crash(signal);
  const char* message =
      "error: /dev/shm is full, and MPI needs more of it. free space there, or enlarge it (docker: --shm-size=2g), and "
      "start again\n";
  ::alarm(2);
  remove_used_shm_folders();
  if (claim_report_of_host(Reporter::failure)) {
    [[maybe_unused]] const auto done = ::write(STDERR_FILENO, message, std::strlen(message));
    ::usleep(300'000);  // the other ranks most often fail at the same time
  }
  ::_exit(int(Exit::data));
}

void install_crash_handler() {
#ifndef __SANITIZE_ADDRESS__  // the sanitizer's own report has more details
  struct sigaction action {};
  action.sa_handler = on_crash;
  for (const int signal : {SIGSEGV, SIGFPE, SIGABRT}) ::sigaction(signal, &action, &previous_handlers[signal]);
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, &previous_handlers[SIGBUS]);
#endif
}

}  // namespace

World& end_all_ranks_on_failure(std::unique_ptr<World> given) {
  world = std::move(given);
  failure_world = world->duplicate();
  positions = std::make_unique<PositionExchange>(*world);
  watchdog::set_abort([] { world->abort(int(Exit::comm)); });
  std::set_terminate(on_terminate);
  install_crash_handler();
  return *world;
}

void release_world() {
  const watchdog::PartScope part(watchdog::Part::end);
  world->barrier();  // while the hosts still hear of each other
  positions.reset();
  watchdog::set_abort(nullptr);
  failure_world.reset();
  world.reset();
  watchdog::stop();
}

}  // namespace millrace::app
