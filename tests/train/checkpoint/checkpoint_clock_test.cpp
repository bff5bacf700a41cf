#include "train/checkpoint_clock.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace checkpoint_clock_test {

struct Scenario {
  CheckpointClock::Clock::time_point now{};
  CheckpointClock clock;
  Scenario(const char* every, double mtbf, int hosts = 1, bool limited = false)
      : clock(options(every, mtbf), hosts, limited, now) {}
  static CheckpointOptions options(const char* every, double mtbf) {
    CheckpointOptions out;
    out.every = every;
    out.mtbf = mtbf;
    return out;
  }
  void pass(double seconds) {
    now += std::chrono::duration_cast<CheckpointClock::Clock::duration>(std::chrono::duration<double>(seconds));
  }
  bool due() const { return clock.due_at(now); }
  // A save that stops the training for `copy` seconds and makes two of three steps longer.
  std::string save(double copy, double step, double longer) {
    clock.began(copy, now);
    for (const double seconds : {longer, longer, step}) {
      clock.step(seconds);
      pass(seconds);
    }
    return clock.ended(now);
  }
};

TEST(CheckpointClock, TheOptimumIsDalys) {
  EXPECT_NEAR(optimal_interval(2, 0, 10000), std::sqrt(2 * 2 * 10000) - 2, 1e-9);
  EXPECT_EQ(optimal_interval(1e-6, 0, 1000), 30);  // never in quick succession
  EXPECT_EQ(optimal_interval(0.1, 60, 1e4), 600);  // a save takes at most a tenth of the time
  EXPECT_EQ(optimal_interval(10, 0, 1e9), 3600);   // never more than an hour lost
}

TEST(CheckpointClock, AutoMeasuresASaveAndChoosesTheInterval) {
  Scenario s("auto", 40000, 4);
  EXPECT_FALSE(s.clock.never());
  for (int i = 0; i < 59; ++i) {
    EXPECT_FALSE(s.due());
    s.clock.step(1);
    s.pass(1);
  }
  s.pass(1);
  EXPECT_TRUE(s.due());
  // The save costs 0.5 + 2 * 0.25 s, and the job fails every 10,000 s: sqrt(2 * 1 * 10000) - 1.
  const std::string line = s.save(0.5, 1, 1.25);
  EXPECT_NE(line.find("every 2:20 (a save takes 3.5 s and costs the training 1.0 s; checkpoint.mtbf on 4 hosts: one "
                      "failure in 2:46:40)"),
            std::string::npos)
      << line;
  EXPECT_NEAR(s.clock.duration(), 3.5, 1e-6);
  s.pass(136);  // of 140.4 s since the save began
  EXPECT_FALSE(s.due());
  s.pass(1.5);
  EXPECT_TRUE(s.due());
  EXPECT_EQ(s.save(0.5, 1, 1.25), "");  // the same cost: nothing to say
  s.clock.began(9, s.now);
  EXPECT_EQ(s.clock.ended(s.now), "");  // the last save of a run
  EXPECT_NE(s.save(4, 1, 1), "");
}

TEST(CheckpointClock, OneSaveIsMeasuredEarlyIfTheTimeIsLimited) {
  Scenario limited("1e", 1e6, 1, true), unlimited("1e", 1e6), none("none", 1e6, 1, true);
  for (Scenario* s : {&limited, &unlimited, &none}) s->pass(61);
  EXPECT_TRUE(limited.due());
  EXPECT_FALSE(unlimited.due());
  EXPECT_FALSE(none.due());
  limited.save(0, 1, 1);
  limited.pass(1000);
  EXPECT_FALSE(limited.due());
}

TEST(CheckpointClock, TimeAndStepsAreCounted) {
  Scenario minutes("2m", 1e6), steps("5", 1e6);
  minutes.pass(119);
  EXPECT_FALSE(minutes.due());
  minutes.pass(1);
  EXPECT_TRUE(minutes.due());
  minutes.clock.began(0, minutes.now);
  minutes.pass(500);
  EXPECT_FALSE(minutes.due()) << "a save is in progress";
  const Epochs epochs{100, 30, {}};
  EXPECT_TRUE(steps.clock.due_after(10, epochs));
  EXPECT_FALSE(steps.clock.due_after(11, epochs));
}

}  // namespace checkpoint_clock_test
}  // namespace millrace
