// The share of the speed of light of each step, and the file of the machine's rates.
#include "train/logging/speed_of_light.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "millrace/base/files.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace speed_of_light_test {

using nlohmann::json;

Peaks made_up(double factor) {
  Peaks p;
  p.product_flops = 2e9 * factor;
  p.convolution_flops = 3e9 * factor;
  p.memory_rates = {{1e6, 9e9 * factor}, {1e8, 5e9 * factor}};
  p.memory_bytes = 5e9 * factor;
  return p;
}

// Runs with a cache folder of their own, so that they measure, or find what the test has put there.
struct Lit : test::TemporaryFolder {
  RunConfig config = test::small_run(true, "1024");
  Lit() {
    config.run.dir = (path / "run").string();
    config.train.steps = 40;
    config.train.epochs = 0;
    ::setenv("XDG_CACHE_HOME", (path / "cache").c_str(), 1);
  }
  ~Lit() { ::unsetenv("XDG_CACHE_HOME"); }
  // Puts rates into the cache, as if they had been measured often enough.
  void keep_rates(double factor, int ranks) {
    run_thread_world(ranks, [&](World& world) {
      Session s(world, config, Session::Use::train);
      if (world.rank() == 0) rates_file(s).save({made_up(factor), "measured", 100});
    });
  }
  void train(int ranks) {
    run_thread_world(ranks, [&](World& world) { EXPECT_EQ(millrace::train(world, config), Exit::ok); });
  }
  std::vector<json> lines() const { return test::metrics_of(path / "run"); }
  json file(const char* name) const { return json::parse(read_file(path / "run" / name)); }
};

TEST(SpeedOfLight, EachStepHasAShareOfTheMeasuredRates) {
  Lit run;
  run.train(2);
  ASSERT_EQ(run.lines().size(), 40u);
  for (const json& line : run.lines()) {
    EXPECT_GT(line.at("speed_of_light"), 0);
    EXPECT_LE(line.at("speed_of_light"), 1);
  }
  const json record = run.file("run.json").at("speed_of_light");
  EXPECT_EQ(record.at("rates"), "measured");
  EXPECT_GT(record.at("flops"), 1e8);
  EXPECT_EQ(record.at("memory_rates").size(), 4u);
  const json light = run.file("summary.json").at("speed_of_light");
  EXPECT_GT(light.at("share"), 0);
  EXPECT_LE(light.at("share"), 1);
  ASSERT_EQ(light.at("operations").size(), 7u) << light;  // input, conv, norm with ReLU, pool, linear, loss, optimizer
  for (const json& op : light.at("operations")) {
    EXPECT_GT(op.at("step_ms"), 0) << op;
    EXPECT_GT(op.at("least_ms"), 0) << op;
  }
}

TEST(SpeedOfLight, RatesOfTheCacheAreUsedAndDoubledRatesHalveTheLeastTime) {
  std::vector<double> least;
  for (const double factor : {1.0, 2.0}) {
    Lit run;
    run.keep_rates(factor, 1);
    run.train(1);
    const json record = run.file("run.json").at("speed_of_light");
    EXPECT_EQ(record.at("flops"), 3e9 * factor);  // the faster of product and convolution
    least.push_back(record.at("step_ms"));
  }
  EXPECT_NEAR(least.at(0), 2 * least.at(1), 1e-9 * least.at(0));
}

TEST(SpeedOfLight, StepsThatAreFasterThanTheRatesRaiseThem) {
  Lit run;
  run.keep_rates(1e-6, 1);
  run.train(1);
  const auto lines = run.lines();
  for (const json& line : lines) EXPECT_LE(line.at("speed_of_light"), 1);
  for (int step = 0; step < 16; ++step) EXPECT_EQ(lines.at(std::size_t(step)).at("speed_of_light"), 1);
  const double before = run.file("run.json").at("speed_of_light").at("step_ms");  // some seconds
  const json light = run.file("summary.json").at("speed_of_light");
  EXPECT_LT(light.at("step_ms"), before / 10);
  EXPECT_GT(light.at("share"), 0);
  EXPECT_LE(light.at("share"), 1);
}

TEST(SpeedOfLight, OffMeasuresNothing) {
  Lit run;
  run.config.log.speed_of_light = false;
  run.train(1);
  EXPECT_FALSE(run.lines().at(0).contains("speed_of_light"));
  EXPECT_TRUE(run.file("run.json").at("speed_of_light").is_null());
  EXPECT_TRUE(run.file("summary.json").at("speed_of_light").is_null());
  EXPECT_FALSE(std::filesystem::exists(run.path / "cache"));
}

TEST(SpeedOfLight, TheFileKeepsTheHighestRatesOfItsKey) {
  const test::TemporaryFolder folder;
  const RatesFile file("host, 2 threads", folder.path / "new");
  EXPECT_FALSE(file.load());
  MachineRates rates;
  rates.add(made_up(1));
  rates.add(made_up(0.5));
  file.save(rates);
  const auto loaded = file.load();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->measurements, 2);
  EXPECT_EQ(loaded->peaks.best_flops(), 3e9);
  EXPECT_EQ(loaded->peaks.memory_rate(1e6), 9e9);
  EXPECT_EQ(loaded->peaks.memory_bytes, 5e9);
  EXPECT_FALSE(RatesFile("host, 1 thread", folder.path / "new").load());
}

TEST(SpeedOfLight, AForeignFileIsNeitherReadNorReplaced) {
  const test::TemporaryFolder folder;
  const RatesFile file("host", folder.path);
  for (const char* text : {"", "notes", "{\"format\": \"millrace-rates-1\", \"key\": \"another host\"}"}) {
    std::ofstream(file.path()) << text;
    EXPECT_FALSE(file.load());
    file.save({made_up(1), "measured", 1});
    EXPECT_EQ(read_file(file.path()), text);
  }
}

}  // namespace speed_of_light_test
}  // namespace millrace
