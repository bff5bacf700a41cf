// Tests of errors.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "millrace/base/error.hpp"

namespace millrace::test {

// The message of the Error that f throws. Fails the test if f throws none, or one with another code.
template <class F>
std::string message_of(F&& f, Exit code = Exit::data) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(int(e.code()), int(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// Expects that f throws an Error with this code, whose message contains `words`.
template <class F>
void expect_error(Exit code, const std::string& words, F&& f) {
  const std::string message = message_of(f, code);
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

}  // namespace millrace::test
