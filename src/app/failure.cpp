#include "failure.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <new>
#include <thread>

#include "millrace/base/log.hpp"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<World> world, farewell;
constexpr auto patience = 1s;  // all ranks fail within this time, or they did not fail together

struct Failure {
  Exit code;
  std::string message;
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
  }
  return {Exit::internal, "terminated without an exception"};
}

// Every rank failed: each distinct message once, the code of the lowest rank.
[[noreturn]] void end_together(const std::vector<std::string>& all) {
  std::vector<std::string> messages;
  for (const auto& one : all) {
    const std::string message = one.substr(one.find(' ') + 1);
    if (std::find(messages.begin(), messages.end(), message) == messages.end()) messages.push_back(message);
  }
  for (const auto& message : messages) log::info("error: " + message);
  const int code = std::atoi(all.front().c_str());
  std::thread([code] {  // MPI may not end when a library left something open
    std::this_thread::sleep_for(2s);
    std::_Exit(code);
  })
      .detach();
  farewell.reset();
  world.reset();
  std::_Exit(code);
}

[[noreturn]] void on_terminate() {
  static std::atomic<bool> ending{false};
  if (ending.exchange(true))
    for (;;) ::pause();  // another thread of this rank is at it
  const Failure failure = current_failure();
  const std::string mine = std::to_string(int(failure.code)) + " " + failure.message;
  if (world->size() == 1) end_together({mine});
  auto all = std::async(std::launch::async, [&] { return farewell->gather(mine); });
  if (all.wait_for(patience) == std::future_status::ready) end_together(all.get());
  log::error(failure.message);
  world->abort(int(failure.code));
  std::_Exit(int(failure.code));
}

}  // namespace

World& end_all_ranks_on_failure(std::unique_ptr<World> given) {
  world = std::move(given);
  farewell = world->duplicate();
  std::set_terminate(on_terminate);
  return *world;
}

void release_world() {
  farewell.reset();
  world.reset();
}

}  // namespace millrace::app
