#include "train/overflow.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millrace/io/hdf5.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace overflow_test {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

struct ThreeLayers {
  Graph graph;
  ParameterLayout layout;
  std::vector<float> gradient;
  static Graph make() {
    Graph g;
    for (const char* name : {"conv1.weight", "conv2.weight", "fc.weight"}) g.parameters.push_back({name, {10, 7}});
    return g;
  }
  ThreeLayers() : graph(make()), layout(graph), gradient(std::size_t(layout.count), 0.5f) {}
  float& at(int p, int i) { return gradient[std::size_t(layout.parameters[std::size_t(p)].begin + i)]; }
  std::string text() const { return describe_gradient(graph, scan_gradient(layout, gradient)); }
};

TEST(Overflow, TheAffectedParameterNearestTheLossIsNamed) {
  ThreeLayers net;
  net.at(0, 3) = nan;
  net.at(1, 69) = -inf;
  net.at(2, 5) = -61000;
  EXPECT_EQ(net.text(),
            "the gradient is not finite in 2 of 3 parameters (nearest to the loss: conv2.weight); the largest finite "
            "value is 6.1e+04, in fc.weight");
}

TEST(Overflow, PaddingBetweenParametersIsIgnored) {
  ThreeLayers net;
  net.gradient[std::size_t(net.layout.parameters[0].begin + 70)] = inf;
  EXPECT_EQ(net.text(), "the gradient of the last step is finite again; the largest finite value is 0.5, in fc.weight");
}

TEST(Overflow, AGradientWithoutFiniteValuesIsDescribed) {
  ThreeLayers net;
  for (float& g : net.gradient) g = nan;
  EXPECT_EQ(net.text(), "the gradient is not finite in 3 of 3 parameters (nearest to the loss: fc.weight)");
}

TEST(Overflow, ShardsOfAllRanksTogetherDescribeTheWholeGradient) {
  ThreeLayers net;
  net.at(1, 69) = -inf;
  net.at(2, 5) = -61000;
  net.at(0, 0) = 7e4f;
  const std::int64_t half = net.layout.count / 2;
  auto other = net;
  for (std::int64_t i = 0; i < net.layout.count; ++i)  // elements of other ranks' shards are undefined
    (i < half ? other : net).gradient[std::size_t(i)] = nan;
  const OptimizerShard first{0, half}, second{half, net.layout.count - half};
  auto survey = scan_gradient(net.layout, net.gradient, {&first, 1});
  const auto rest = scan_gradient(net.layout, other.gradient, {&second, 1});
  for (std::size_t i = 0; i < survey.size(); ++i) survey[i] = std::max(survey[i], rest[i]);
  EXPECT_EQ(describe_gradient(net.graph, survey),
            "the gradient is not finite in 1 of 3 parameters (nearest to the loss: conv2.weight); the largest finite "
            "value is 7e+04, in conv1.weight");
}

// Trains on the given number of ranks, and returns the text on standard error followed by the error message.
std::string words_of(const RunConfig& c, Exit expected, int ranks = 1) {
  testing::internal::CaptureStderr();
  std::string error;
  Exit code = Exit::ok;
  try {
    run_thread_world(ranks, [&](World& world) { train(world, c); });
  } catch (const Error& e) {
    error = e.what();
    code = e.code();
  }
  EXPECT_EQ(int(code), int(expected)) << error;
  return testing::internal::GetCapturedStderr() + error;
}

TEST(Overflow, ConsecutiveSkippedStepsAreDiagnosedOnce) {
  const test::TemporaryFolder folder;
  RunConfig c = test::small_run(true);
  c.run.dir = (folder.path / "run").string();
  c.run.precision = Precision::fp16;
  c.optim.loss_scale = 1e12;  // far too large for 16 bits: each overflow halves it
  c.train.steps = 40;
  c.train.epochs = 20;
  const std::string text = words_of(c, Exit::ok);
  const auto first = text.find("warning: overflow in 8 consecutive steps: the gradient is not finite in ");
  ASSERT_NE(first, text.npos) << text;
  EXPECT_EQ(text.find("consecutive steps", first + 60), text.npos) << text;
  EXPECT_NE(text.find("run.precision = bf16", first), text.npos) << text;
}

TEST(Overflow, WithZeroTheGradientOfAllRanksIsDescribed) {
  std::string texts[2];
  for (const int zero : {0, 1}) {
    const test::TemporaryFolder folder;
    RunConfig c = test::small_run(true);
    c.run.dir = (folder.path / "run").string();
    c.run.precision = Precision::fp16;
    c.optim.loss_scale = 1e12;
    c.optim.zero = zero;
    c.train.steps = 9;
    c.train.epochs = 20;
    const std::string text = words_of(c, Exit::ok, 2);
    const auto begin = text.find("warning: overflow in 8 consecutive steps");
    ASSERT_NE(begin, text.npos) << text;
    texts[zero] = text.substr(begin, text.find('\n', begin) - begin);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(Overflow, ADivergedRunNamesTheParameter) {
  const test::TemporaryFolder folder;
  RunConfig c = test::small_run(false);
  c.run.dir = (folder.path / "run").string();
  c.optim.lr = 1e30;
  c.optim.warmup = 0;
  c.optim.schedule = LrSchedule::constant;
  const std::string text = words_of(c, Exit::diverged);
  EXPECT_NE(text.find("the gradient is not finite in "), text.npos) << text;
}

// A perceptron on one file of 64 vectors.
static RunConfig run_on_file(const test::TemporaryFolder& folder, const std::string& path) {
  RunConfig c = test::small_run(false);
  c.run.dir = (folder.path / "run").string();
  c.data.train = {path};
  c.data.valid.clear();
  c.data.augment = false;
  c.model = {};
  c.model.hidden = {4};
  c.train.global_batch = 8;
  c.train.micro_batch = 0;
  return c;
}

TEST(Overflow, ADivergedRunNamesTheSampleThatIsNotFinite) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path / "set.h5";
  std::vector<float> x(64 * 4, 0.5f), y(64, 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(i % 7);
  y[13] = nan;
  {
    io::File file = io::File::create(path);
    file.create_dataset("x", DType::f32, {64, 4});
    file.create_dataset("y", DType::f32, {64, 1});
    file.write_rows("x", 0, 64, DType::f32, x.data());
    file.write_rows("y", 0, 64, DType::f32, y.data());
    file.close();
  }
  const RunConfig c = run_on_file(folder, path);
  const std::string text = words_of(c, Exit::diverged, 2);
  EXPECT_NE(text.find("sample 13 of the data, in " + path + ", has a target that is not finite. fix the data"),
            text.npos)
      << text;
}

TEST(Overflow, ADivergedRunNamesTheLabelThatIsNoClass) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path / "set.h5";
  const std::vector<float> x(64 * 4, 0.5f);
  std::vector<std::int32_t> y(64, 1);
  y[13] = 7;
  {
    io::File file = io::File::create(path);
    file.create_dataset("x", DType::f32, {64, 4});
    file.create_dataset("y", DType::i32, {64});
    file.set("/", "classes", std::int64_t(3));
    file.write_rows("x", 0, 64, DType::f32, x.data());
    file.write_rows("y", 0, 64, DType::i32, y.data());
    file.close();
  }
  const RunConfig c = run_on_file(folder, path);
  const std::string text = words_of(c, Exit::diverged, 2);
  EXPECT_NE(text.find("sample 13 of the data, in " + path + ", has the label 7, but there are 3 classes"), text.npos)
      << text;
  EXPECT_NE(text.find("warning: data.train: 'y': 1 rows have the label 7, but the files' attribute classes says"),
            text.npos)
      << text;
}

}  // namespace overflow_test
}  // namespace millrace
