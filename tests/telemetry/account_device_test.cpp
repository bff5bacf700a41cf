// The device part of an account.
#include <gtest/gtest.h>

#include "millrace/telemetry/account.hpp"

namespace millrace {
namespace account_device_test {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

RankAccount traced(double busy) {
  RankAccount r;
  r.host = "node7";
  r.wall_seconds = 10;
  r.device = {24, 2.0, busy, 1.5, 0.25, 0.5, {{"conv_kernel<float>", 48, 1.0, 0.62}, {"update", 24, 0.125, 0}}};
  r.health.samples = 10;
  r.health.clock_mhz = 1500;
  r.health.least_clock_mhz = 1300;
  r.health.top_clock_mhz = 1980;
  r.health.watts = 690;
  r.health.limit_watts = 700;
  r.health.celsius = 81;
  r.health.joules = 6900;
  r.health.pcie_generation = 4;
  r.health.pcie_lanes = 8;
  r.health.nvlinks = 12;
  r.health.nvlink_rate = 3e11;
  r.health.throttle_reasons = {{"power cap", 0.8}, {"sync boost", 0.05}};
  return r;
}

TEST(Account, ReportsTheTracedDevice) {
  const std::string text = Account{{traced(1.8), traced(1.6), traced(1.9)}}.table();
  EXPECT_TRUE(has(text, "24 traced steps: busy 90.00 % (80.00 to 95.00 over ranks), computing 75.00 %")) << text;
  EXPECT_TRUE(has(text, "exposed: communication 12.50 % (12.50 to 12.50 over ranks), copies 25.00 %")) << text;
  EXPECT_TRUE(has(text, "50.00 %       48 x    20833.3 us     62 %  conv_kernel<float>")) << text;
  EXPECT_TRUE(has(text, "-  update")) << text;
  EXPECT_TRUE(has(text, "1500 MHz on average (min 1300, supported 1980), 690 W of 700, up to 81 C")) << text;
  EXPECT_TRUE(has(text, "energy of all devices: 20.7 kJ")) << text;
  EXPECT_TRUE(has(text, "clock of rank 1 on node7 was throttled 80 % of the time: power cap")) << text;
  EXPECT_FALSE(has(text, "sync boost")) << "too rare to matter";
}

TEST(Account, OmitsADeviceThatReportsNothing) {
  RankAccount plain;
  plain.wall_seconds = 1;
  const Account account{{plain}};
  EXPECT_FALSE(has(account.table(), "busy %") || has(account.table(), "traced") || has(account.table(), "MHz"));
  EXPECT_FALSE(has(account.json(), "\"device\"") || has(account.json(), "\"health\""));
}

TEST(Account, JsonRoundTripKeepsTheDevicePart) {
  const RankAccount sent = traced(1.75);
  const RankAccount got = RankAccount::from_json(Account{{sent}}.json());
  EXPECT_EQ(got.device.steps, 24);
  EXPECT_EQ(got.device.busy, 1.75);
  EXPECT_EQ(got.device.exposed_copies, 0.5);
  ASSERT_EQ(got.device.kernels.size(), 2u);
  EXPECT_EQ(got.device.kernels[0].name, "conv_kernel<float>");
  EXPECT_EQ(got.device.kernels[0].least_seconds, 0.62);
  EXPECT_EQ(got.device.kernels[1].least_seconds, 0);
  EXPECT_EQ(got.health.clock_mhz, 1500);
  EXPECT_EQ(got.health.pcie_lanes, 8);
  EXPECT_EQ(got.health.top_pcie_lanes, -1);
  EXPECT_EQ(got.health.nvlink_rate, 3e11);
  EXPECT_EQ(got.health.throttle_reasons, sent.health.throttle_reasons);
  EXPECT_EQ(Account{{got}}.json(), Account{{sent}}.json());
}

}  // namespace account_device_test
}  // namespace millrace
