// Compares the schedules with the learning rates of PyTorch's schedulers, which tests/parity/record.py has recorded.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "millrace/config/keys.hpp"
#include "millrace/config/schedule.hpp"

namespace millrace {
namespace {

TEST(ScheduleParity, LearningRatesAreThoseOfPyTorch) {
  std::ifstream file(std::string(MILLRACE_SOURCE_DIR) + "/tests/parity/recorded/schedules.json");
  const auto recorded = nlohmann::json::parse(file);
  ASSERT_EQ(recorded["cases"].size(), 15u);
  for (const auto& c : recorded["cases"]) {
    SCOPED_TRACE(c["optim"].dump());
    RunConfig config;
    for (const auto& [key, words] : c["optim"].items())
      find_key("optim." + key)->set(config, words.get<std::vector<std::string>>());
    const Schedule schedule(config.optim, recorded["steps_per_epoch"], c["total_steps"], 32);
    std::int64_t step = 0;
    for (const double rate : c["learning_rates"]) {
      // PyTorch computes some rates from the rate of the step before, so rounding errors accumulate.
      EXPECT_NEAR(schedule.learning_rate(step), rate, 1e-13) << "step " << step;
      ++step;
    }
    EXPECT_EQ(step, c["total_steps"]);
  }
}

}  // namespace
}  // namespace millrace
