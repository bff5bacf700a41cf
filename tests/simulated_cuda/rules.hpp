// For tests of the rules of the simulation.
#pragma once
#include <gtest/gtest.h>

// The statement ends the process with a line that matches `rule`.
#define EXPECT_VIOLATION(statement, rule) \
  EXPECT_EXIT(statement, testing::ExitedWithCode(70), "^simulated CUDA: rank 0: .*" rule)
