// Runs a function in a thread of its own.
#pragma once
#include <future>
#include <system_error>

namespace millrace {

// Calls f in a thread; without a free thread (ulimit -u), at the get() of the result.
template <class F>
auto in_background(F f) {
  try {
    return std::async(std::launch::async, f);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, f);
  }
}

}  // namespace millrace
