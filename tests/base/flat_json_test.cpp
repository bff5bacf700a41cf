#include "millrace/base/flat_json.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace flat_json_test {

TEST(FlatJson, OnlyFlatObjectsOfNumbersAreParsed) {
  double sum = 0;
  const auto add = [&](std::string_view, double v) { sum += std::isfinite(v) ? v : 100; };
  EXPECT_TRUE(parse_flat_json("{\"a\":1.5,\"b\":true,\"c\":false,\"d\":null, \"e\": -2e1}", add));
  EXPECT_EQ(sum, 1.5 + 1 + 100 - 20);
  for (const char* bad :
       {"", "{", "{\"a\":1", "{\"a\":1}x", "{\"a\" 1}", "{\"a\":\"text\"}", "{a:1}", "[1]", "{\"a\":1,}"})
    EXPECT_FALSE(parse_flat_json(bad, add)) << bad;
}

}  // namespace flat_json_test
}  // namespace millrace
