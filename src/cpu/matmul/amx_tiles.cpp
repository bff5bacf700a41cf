#include "cpu/matmul/amx_tiles.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include "millrace/base/error.hpp"

namespace millrace::cpu::amx {

bool permitted() {
#ifdef __x86_64__
  constexpr int request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool yes = ::syscall(SYS_arch_prctl, request, tile_data) == 0;
  return yes;
#else
  return false;
#endif
}

#ifndef __x86_64__
void configure_tiles() {
  fail(Exit::internal, "internal error: a product for AMX on a processor without it. ask permitted() first");
}
#endif

}  // namespace millrace::cpu::amx
