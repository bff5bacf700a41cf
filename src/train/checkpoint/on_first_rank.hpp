#pragma once
#include <cstdint>
#include <string>

#include "millrace/base/error.hpp"
#include "millrace/comm/world.hpp"

namespace millrace {

// Rank 0 calls f. If that fails, all ranks fail with its Error. Collective.
template <class F>
void on_first_rank(World& world, F f) {
  std::string problem;
  auto code = std::int64_t(Exit::data);
  if (world.rank() == 0) try {
      f();
    } catch (const Error& e) {
      problem = e.what();
      code = std::int64_t(e.code());
    }
  world.broadcast(&code, sizeof code, 0);
  world.agree(Exit(code), problem);
}

}  // namespace millrace
