// The World of the test binary: made in its main, before any test.
#pragma once
#include "millrace/comm/world.hpp"

namespace millrace {

World& test_world();

}  // namespace millrace
