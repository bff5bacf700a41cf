#include "data/index/read_error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace millrace {
namespace {

constexpr int transient_errors[] = {EIO,        EAGAIN,       EINTR,       ESTALE,    ETIMEDOUT, EREMOTEIO,
                                    EBUSY,      ENETDOWN,     ENETUNREACH, ENETRESET, EHOSTDOWN, EHOSTUNREACH,
                                    ECONNRESET, ECONNREFUSED, ENOTCONN,    ESHUTDOWN};

}  // namespace

bool is_transient(int error) {
  return std::find(std::begin(transient_errors), std::end(transient_errors), error) != std::end(transient_errors);
}

bool is_resource_exhaustion(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

int system_error_of(const Error& e) {
  if (const auto* read = dynamic_cast<const ReadError*>(&e)) return read->system_error();
  for (const int error : transient_errors)
    if (std::strstr(e.what(), std::strerror(error))) return error;
  return 0;
}

}  // namespace millrace
