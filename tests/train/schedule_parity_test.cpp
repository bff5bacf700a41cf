// Compares the schedules with the learning rates of PyTorch's schedulers, which tests/parity/record.py has recorded.
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/config/keys.hpp"
#include "millrace/config/schedule.hpp"
#include "support/recorded.hpp"
#include "train/session/plateau.hpp"

namespace millrace {
namespace schedule_parity_test {

TEST(ScheduleParity, PlateausAreThoseOfPyTorch) {
  const auto recorded = test::recorded("schedules.json");
  ASSERT_EQ(recorded["plateau"].size(), 6u);
  for (const auto& c : recorded["plateau"]) {
    SCOPED_TRACE(c.dump());
    OptimOptions options;
    options.patience = c["patience"];
    options.gamma = c["gamma"];
    PlateauState state;
    for (std::size_t i = 0; i < c["values"].size(); ++i) {
      const auto& value = c["values"][i];  // null: NaN
      const double before = state.rate;
      const bool reduced = state.evaluated(options, c["metric"], value.is_null() ? std::nan("") : value.get<double>());
      EXPECT_EQ(reduced, state.rate < before) << "evaluation " << i;
      EXPECT_NEAR(state.rate, c["rates"][i].get<double>(), 1e-15) << "evaluation " << i;
    }
  }
}

TEST(ScheduleParity, LearningRatesAreThoseOfPyTorch) {
  const auto recorded = test::recorded("schedules.json");
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

}  // namespace schedule_parity_test
}  // namespace millrace
