// A failed read, with the system's error number if it has one: some errors pass. Private to the data room.
#pragma once
#include <string>

#include "millrace/base/error.hpp"

namespace millrace {

class ReadError : public Error {
 public:
  ReadError(const std::string& message, int system_error) : Error(Exit::data, message), system_error_(system_error) {}
  int system_error() const { return system_error_; }  // errno; 0: not the system's, such as a file that is too short

 private:
  int system_error_;
};

constexpr double max_retry_delay = 5;  // seconds

// errno, of a ReadError or as HDF5's text tells it; 0: none.
int system_error_of(const Error&);
// File systems of the network recover from it; on a disk of one's own it costs a few tries.
bool is_transient(int system_error);
// Of this process and not of a file: handles or memory are short.
bool is_resource_exhaustion(int system_error);

}  // namespace millrace
