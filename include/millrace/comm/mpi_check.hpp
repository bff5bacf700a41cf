// MR_MPI(call) wraps a call of MPI. If it fails, it throws an Error(comm) with MPI's message and the text of the call.
#pragma once
#include <mpi.h>

#include "millrace/base/error.hpp"

namespace millrace {

inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(Exit::comm, "MPI failed ({}) in {}", text, call);
}

}  // namespace millrace

#define MR_MPI(call) ::millrace::check_mpi((call), #call)
