// The World of the test binary. main() makes it before any test runs.
#pragma once
#include "millrace/comm/world.hpp"

namespace millrace {

World& test_world();

}  // namespace millrace
