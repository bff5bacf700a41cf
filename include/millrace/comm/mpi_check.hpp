// MR_MPI(call): MPI's own text and the call's in one Error.
#pragma once
#include <mpi.h>

#include "millrace/base/error.hpp"

namespace millrace {

inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(Exit::comm, "MPI failed (", text, ") in ", call);
}

}  // namespace millrace

#define MR_MPI(call) ::millrace::check_mpi((call), #call)
