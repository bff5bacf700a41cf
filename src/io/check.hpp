// MR_H5 wraps every HDF5 call. A negative result becomes an Error(data) with the call's name and the innermost messages
// of HDF5's error stack, in one line.
#pragma once
#include <hdf5.h>

#include <string>

namespace millrace::io {

// The innermost messages of HDF5's error stack: "file write failed; No space left on device". Clears the stack.
std::string error_stack();
[[noreturn]] void fail_hdf5_call(const std::string& where, const char* call);

}  // namespace millrace::io

// where: a string (file, or data set in a file) for the message. It is evaluated only on failure.
#define MR_H5(where, call)                                             \
  ([&] {                                                               \
    const auto mr_result = (call);                                     \
    if (mr_result < 0) ::millrace::io::fail_hdf5_call((where), #call); \
    return mr_result;                                                  \
  }())
