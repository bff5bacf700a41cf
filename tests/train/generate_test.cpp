// Language models: what `generate` computes from a checkpoint.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include "millrace/data/pack/importer.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/text/tokenizer.hpp"
#include "support/expect_error.hpp"
#include "train/evaluate.hpp"
#include "train/language_model.hpp"
#include "train/runs.hpp"
#include "train/sample_token.hpp"

namespace millrace {
namespace generate_test {

constexpr std::int64_t window = 80;
const std::string text = [] {
  std::string out;
  for (int i = 0; i < 400; ++i) out += "line " + std::to_string(i * i % 17) + "\n";
  return out;
}();

// A run on the bytes of a text, whose validation data is one window.
struct LanguageRun : test::TemporaryFolder {
  RunConfig config;
  explicit LanguageRun(const char* positions = "positions std=0.2",
                       const char* attention = "attention heads=2 causal") {
    pack_text("train", text);
    pack_text("valid", text.substr(1000, window + 1));
    config.data.train = {(path / "train-*.h5").string()};
    config.data.valid = {(path / "valid-*.h5").string()};
    config.data.sample = SampleKind::tokens;
    config.data.token_labels = TokenLabels::every;
    config.data.window = config.data.stride = window;
    config.data.workers = 1;
    config.model.name = ModelName::layers;
    config.model.layers = {"embedding 16 std=0.5", positions, "residual {", "linear 48 axis=last",     attention,
                           "linear 16 axis=last",  "}",       "layernorm",  "linear outputs axis=last"};
    config.train.steps = 6;
    config.train.global_batch = 8;
    config.optim.lr = 0.1;
    config.run.threads = 1;
    config.run.dir = (path / "run").string();
  }
  void pack_text(const std::string& name, const std::string& content) const {
    std::ofstream(path / (name + ".txt"), std::ios::binary) << content;
    ImportOptions in;
    in.x = {(path / (name + ".txt")).string()};
    in.token_bytes = 1;
    in.context = window;
    in.vocabulary = 256;
    in.tokenizer = Tokenizer::bytes().to_json();
    PackOptions out;
    out.out = path;
    out.prefix = name;
    const auto importer = make_importer(in);
    run_thread_world(1, [&](World& world) { pack(world, *importer, out); });
  }
  void train() const {
    testing::internal::CaptureStdout();
    run_thread_world(1, [&](World& world) { millrace::train(world, config); });
    testing::internal::GetCapturedStdout();
  }
  // Calls body(world, the checkpoint of the run).
  void with_checkpoint(const std::function<void(World&, const CheckpointModel&)>& body) const {
    run_thread_world(1, [&](World& world) { body(world, find_checkpoint(world, {config.run.dir, "newest"})); });
  }
};

double loss_of(std::span<const float> logits, std::size_t label) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit));
  return std::log(sum) - double(logits[label]);
}

// next() reads the last position of a window, and short texts use other programs, with fewer positions. The evaluation
// does neither.
TEST(LanguageModel, LogitsAfterEachPrefixGiveTheLossOfTheEvaluation) {
  const LanguageRun run;
  run.train();
  run.with_checkpoint([&](World& world, const CheckpointModel& model) {
    double expected = 0;
    {
      Session session(world, run.config, Session::Use::evaluate, &*model.record);
      Network network(session.compute, session.spec);
      CheckpointStore(world, session.compute, model.path.parent_path(), 1).load(network, model.path);
      expected = Evaluator(session, network).run().loss;
    }
    LanguageModel language(world, run.config, model);
    EXPECT_EQ(language.window(), window);
    EXPECT_EQ(language.vocabulary(), 256);
    std::vector<std::int32_t> tokens;
    double loss = 0;
    for (std::size_t i = 0; i < std::size_t(window); ++i) {
      tokens.push_back(std::uint8_t(text[1000 + i]));
      loss += loss_of(language.next(tokens), std::uint8_t(text[1001 + i])) / double(window);
    }
    EXPECT_NEAR(loss, expected, 1e-5);
    EXPECT_GT(expected, 0.1);
  });
}

TEST(LanguageModel, ReadsTheLastWindowOfALongText) {
  const LanguageRun run;
  run.train();
  run.with_checkpoint([&](World& world, const CheckpointModel& model) {
    LanguageModel language(world, run.config, model);
    const std::vector<std::int32_t> tokens(text.begin(), text.begin() + 3 * window);
    const auto whole = language.next(tokens);
    const std::vector<float> logits(whole.begin(), whole.end());
    const auto last = language.next(std::span(tokens).last(window));
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(), last.begin()));
  });
}

TEST(LanguageModel, CheckpointsHoldTheTokenizerOfTheData) {
  const LanguageRun run;
  run.train();
  run.with_checkpoint([&](World&, const CheckpointModel& model) {
    EXPECT_EQ(model.record->tokenizer, Tokenizer::bytes().to_json());
    EXPECT_EQ(model.record->classes.count, 256);
  });
}

TEST(LanguageModel, RefusesNetworksThatSeeLaterTokens) {
  const LanguageRun run("positions std=0.2", "attention heads=2");
  run.train();
  run.with_checkpoint([&](World& world, const CheckpointModel& model) {
    test::expect_error(Exit::config, "its results depend on later tokens",
                       [&] { LanguageModel(world, run.config, model); });
  });
}

TEST(SampleToken, TemperatureZeroTakesTheFirstOfTheLargest) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 2, 3}, 0, 0, 0.99), 1);
  EXPECT_EQ(sample_token(std::vector<float>{-5}, 0, 0, 0), 0);
}

TEST(SampleToken, FrequenciesAreTheSoftmaxOfTheLogits) {
  const std::vector<float> logits{0, std::log(2.f), std::log(4.f), std::log(1.f)};
  const auto frequencies = [&](double temperature, std::int64_t top_k) {
    std::vector<double> out(4);
    for (int i = 0; i < 20000; ++i)
      out[std::size_t(sample_token(logits, temperature, top_k, random_for_token(5, std::uint64_t(i))))] += 1 / 20000.0;
    return out;
  };
  const auto expect_near = [](const std::vector<double>& got, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], expected[i], 0.015) << i;  // four standard deviations
  };
  expect_near(frequencies(1, 0), {1 / 8.0, 2 / 8.0, 4 / 8.0, 1 / 8.0});
  expect_near(frequencies(0.5, 0), {1 / 22.0, 4 / 22.0, 16 / 22.0, 1 / 22.0});
  expect_near(frequencies(1, 2), {0, 2 / 6.0, 4 / 6.0, 0});
  expect_near(frequencies(1, 3), {1 / 7.0, 2 / 7.0, 4 / 7.0, 0});  // of equal logits the first
  EXPECT_EQ(frequencies(1, 1), (std::vector<double>{0, 0, frequencies(1, 1)[2], 0}));
}

TEST(SampleToken, RefusesWhatIsNotFinite) {
  test::expect_error(Exit::diverged, "nan for token 1", [] {
    sample_token(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, 0, 0, 0);
  });
}

}  // namespace generate_test
}  // namespace millrace
