// Turns exceptions into messages, which ranks can exchange.
#pragma once
#include <exception>
#include <string>

namespace millrace {

// Calls the function and returns the message of the exception that it throws; "" if it does not throw.
template <class F>
std::string message_of(F&& function) {
  try {
    function();
  } catch (const std::exception& e) {
    return *e.what() ? e.what() : "unknown";
  }
  return "";
}

}  // namespace millrace
