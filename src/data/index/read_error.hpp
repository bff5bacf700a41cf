// ReadError: a failed read with its system error number, which tells whether a retry may help. Private to the data
// room.
#pragma once
#include <string>

#include "millrace/base/error.hpp"

namespace millrace {

class ReadError : public Error {
 public:
  ReadError(const std::string& message, int system_error) : Error(Exit::data, message), system_error_(system_error) {}
  int system_error() const { return system_error_; }  // errno; 0: not a system error, such as a file that is too short

 private:
  int system_error_;
};

constexpr double max_retry_delay = 5;  // seconds

// The errno of a ReadError, or the one whose text HDF5's message contains; 0: none.
int system_error_of(const Error&);
// Whether a retry may succeed: network file systems recover from these errors.
bool is_transient(int system_error);
// Whether the process lacks file descriptors or memory; the file itself may be fine.
bool is_resource_exhaustion(int system_error);

}  // namespace millrace
