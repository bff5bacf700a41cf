#include "millrace/base/units.hpp"

#include <gtest/gtest.h>

#include "millrace/base/error.hpp"

namespace millrace {
namespace units_test {

TEST(Units, SizesAreParsed) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("1000"), 1000u);
  EXPECT_EQ(parse_bytes("4k"), 4000u);
  EXPECT_EQ(parse_bytes("4Ki"), 4096u);
  EXPECT_EQ(parse_bytes("256MiB"), 256u << 20);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 3ull << 29);
  EXPECT_EQ(parse_bytes("2TB"), 2000000000000ull);
}

TEST(Units, InvalidSizesAreRefused) {
  for (const char* text : {"", "MiB", "-1", "1e6 B", "12 parsecs", "1MiBs", "1Q", "99999999TiB"})
    EXPECT_THROW(parse_bytes(text), Error) << text;
}

TEST(Units, PrintedSizesReadBackExactly) {
  for (const std::uint64_t bytes :
       {0ull, 1ull, 1000ull, 1024ull, 1025ull, 8ull << 20, 3ull << 30, 1ull << 50, 123456789ull})
    EXPECT_EQ(parse_bytes(print_bytes(bytes)), bytes) << print_bytes(bytes);
  EXPECT_EQ(print_bytes(256u << 20), "256MiB");
}

TEST(Units, DurationsAreParsed) {
  EXPECT_EQ(parse_seconds("90"), 90);
  EXPECT_EQ(parse_seconds("250ms"), 0.25);
  EXPECT_NEAR(parse_seconds("5us"), 5e-6, 1e-18);
  EXPECT_EQ(parse_seconds("2.5s"), 2.5);
  EXPECT_EQ(parse_seconds("10m"), 600);
  EXPECT_EQ(parse_seconds("1h30m"), 5400);
  EXPECT_EQ(parse_seconds("2d"), 172800);
  EXPECT_EQ(parse_seconds("01:30:00"), 5400);
  EXPECT_EQ(parse_seconds("90:05"), 5405);
}

TEST(Units, InvalidDurationsAreRefused) {
  for (const char* text : {"", "soon", "-5s", "5 weeks", "1h 30x", "1e3s"})
    EXPECT_THROW(parse_seconds(text), Error) << text;
}

TEST(Units, RatesDistinguishBitsAndBytes) {
  EXPECT_NEAR(parse_rate("400Gb/s"), 50e9, 1e-3);
  EXPECT_NEAR(parse_rate("100Gbit/s"), 12.5e9, 1e-3);
  EXPECT_NEAR(parse_rate("100 Mbps"), 12.5e6, 1e-6);
  EXPECT_NEAR(parse_rate("1.5GB/s"), 1.5e9, 1e-3);
  EXPECT_EQ(parse_rate("64b/s"), 8);
  EXPECT_EQ(format_rate(50e9), "50 GB/s");
  for (const char* text : {"", "400", "400G", "Gb/s", "-1Gb/s", "0Gb/s", "400Gib/s", "4 lanes"})
    EXPECT_THROW(parse_rate(text), Error) << text;
}

TEST(Units, FormattedValuesHaveUnits) {
  EXPECT_EQ(format_bytes(1572864), "1.50 MiB");
  EXPECT_EQ(format_bytes(12), "12 B");
  EXPECT_EQ(format_seconds(4323), "1:12:03");
  EXPECT_EQ(format_seconds(12.3), "12.3 s");
  EXPECT_EQ(format_seconds(0.0041), "4.1 ms");
  EXPECT_EQ(format_seconds(-1), "?");
  EXPECT_EQ(format_count(25557032), "25.6 M");
}

}  // namespace units_test
}  // namespace millrace
