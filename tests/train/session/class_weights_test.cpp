// Class weights from counted labels, against scikit-learn 1.9.1.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "train/linear_run.hpp"

namespace millrace {
namespace class_weights_test {

using test::labels_of, test::LinearRun;

// compute_class_weight("balanced", classes=np.arange(4), y=labels without the ignored ones)
TEST(BalancedWeights, EqualThoseOfScikitLearn) {
  for (const int ranks : {1, 2}) {
    LinearRun numbers(DType::i32, labels_of(4), Loss::automatic), balanced(DType::i32, labels_of(4), Loss::automatic);
    numbers.config.model.class_weights = {"0.9230769230769231", "1", "1", "1.0909090909090908"};
    balanced.config.model.class_weights = {"balanced"};
    numbers.train(ranks);
    balanced.train(ranks);
    EXPECT_EQ(balanced.summary().at("valid_loss"), numbers.summary().at("valid_loss"));
    // The checkpoint holds the counts, so that it is evaluated without the training data.
    balanced.config.data.train.clear();
    testing::internal::CaptureStdout();
    run_thread_world(ranks, [&](World& world) {
      evaluate(world, balanced.config, {balanced.config.run.dir, "newest"});
    });
    const std::string shown = testing::internal::GetCapturedStdout();
    EXPECT_NE(shown.find(fmt::format("loss {:.4f}", double(numbers.summary().at("valid_loss")))), shown.npos) << shown;
  }
}

TEST(BalancedWeights, CountTheLabelsOfAllFiles) {
  for (const int ranks : {1, 2, 3}) {
    LinearRun numbers(DType::i32, labels_of(2), Loss::automatic), balanced(DType::i32, labels_of(2), Loss::automatic);
    for (LinearRun* run : {&numbers, &balanced}) {
      const std::vector<std::int64_t> zeros(31);
      io::File file = io::File::create((run->path / "more.h5").string());
      file.create_dataset("/x", DType::f32, {31, 3});
      file.write_rows("/x", 0, 31, DType::f32, run->x.data());
      file.create_dataset("/y", DType::i32, {31});
      file.write_rows("/y", 0, 31, DType::i64, zeros.data());
      run->config.data.train.push_back((run->path / "more.h5").string());
    }
    double zeros = 31, ones = 0;
    for (const float y : numbers.y) {
      zeros += y == 0;
      ones += y == 1;
    }
    numbers.config.model.class_weights = {fmt::format("{}", (zeros + ones) / 2 / zeros),
                                          fmt::format("{}", (zeros + ones) / 2 / ones)};
    balanced.config.model.class_weights = {"balanced"};
    numbers.train(ranks);
    balanced.train(ranks);
    EXPECT_EQ(balanced.summary().at("valid_loss"), numbers.summary().at("valid_loss")) << ranks;
  }
}

TEST(BalancedWeights, NeedSamplesOfEachClass) {
  LinearRun run(DType::i32, labels_of(3), Loss::automatic);
  io::File::append((run.path / "data.h5").string()).set("/", "classes", std::int64_t(5));
  run.config.model.class_weights = {"balanced"};
  EXPECT_EQ(
      test::message_of([&] { run_thread_world(2, [&](World& world) { train(world, run.config); }); }, Exit::config),
      "model.class_weights: balanced finds no label 3 in data.train, which has 5 classes. give a number for each "
      "class, or add samples of it");
}

}  // namespace class_weights_test
}  // namespace millrace
