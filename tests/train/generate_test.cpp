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

constexpr std::int64_t window = 160;
const std::string text = [] {
  std::string out;
  for (int i = 0; i < 400; ++i) out += "line " + std::to_string(i * i % 17) + "\n";
  return out;
}();

using Layers = std::vector<std::string>;
const Layers small_gpt = {"embedding 16 std=0.5",     "positions std=0.2",   "residual {", "linear 48 axis=last",
                          "attention heads=2 causal", "linear 16 axis=last", "}",          "layernorm",
                          "linear outputs axis=last"};

// A run on the bytes of a text, whose validation data is one window.
struct LanguageRun : test::TemporaryFolder {
  RunConfig config;
  explicit LanguageRun(const Layers& layers = small_gpt) {
    pack_text("train", text);
    pack_text("valid", text.substr(1000, window + 1));
    config.data.train = {(path / "train-*.h5").string()};
    config.data.valid = {(path / "valid-*.h5").string()};
    config.data.sample = SampleKind::tokens;
    config.data.token_labels = TokenLabels::every;
    config.data.window = config.data.stride = window;
    config.data.workers = 1;
    config.model.name = ModelName::layers;
    config.model.layers = layers;
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
  LanguageRun run;
  run.config.train.logits_memory = 1 << 14;  // the evaluation keeps no logits
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

void expect_close(std::span<const float> logits, std::span<const float> expected, double tolerance) {
  float largest = 0, worst = 0;
  for (const float e : expected) largest = std::max(largest, std::abs(e));
  for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(logits[i] - expected[i]));
  EXPECT_LE(worst, tolerance * double(largest));
}

TEST(LanguageModel, ReadsTheLastWindowOfALongText) {
  const LanguageRun run;
  run.train();
  run.with_checkpoint([&](World& world, const CheckpointModel& model) {
    LanguageModel language(world, run.config, model);
    const std::vector<std::int32_t> tokens(text.begin(), text.begin() + 3 * window);
    const auto whole = language.next(tokens);
    const std::vector<float> logits(whole.begin(), whole.end());
    expect_close(language.next(std::span(tokens).last(window)), logits, 1e-5);
  });
}

// Tokens with a temperature, which make texts that differ at once if the logits differ much. `logits` gets those of
// each token.
std::vector<std::int32_t> write_text(LanguageModel& language, std::size_t count, double temperature,
                                     std::vector<std::vector<float>>& logits) {
  std::vector<std::int32_t> tokens(text.begin(), text.begin() + 150);
  while (tokens.size() < count) {
    const auto next = language.next(tokens);
    logits.emplace_back(next.begin(), next.end());
    tokens.push_back(sample_token(next, temperature, 0, random_for_token(3, tokens.size())));
  }
  return tokens;
}

// From a prompt of two parts to beyond the window, greedily and with a temperature.
void expect_same_text(const LanguageRun& run, bool cached = true) {
  run.train();
  run.with_checkpoint([&](World& world, const CheckpointModel& model) {
    LanguageModel fast(world, run.config, model), slow(world, run.config, model, false);
    EXPECT_EQ(fast.cached(), cached);
    EXPECT_FALSE(slow.cached());
    for (const double temperature : {0.0, 1.0}) {
      std::vector<std::vector<float>> logits, expected;
      const auto tokens = write_text(fast, window + 20, temperature, logits);
      EXPECT_EQ(tokens, write_text(slow, window + 20, temperature, expected));
      for (std::size_t i = 0; i < expected.size(); ++i) expect_close(logits[i], expected[i], 1e-5);
    }
  });
}

TEST(LanguageModel, AGptWithACacheWritesTheSameText) { expect_same_text(LanguageRun()); }

TEST(LanguageModel, RotaryPositionsAndGroupedQueriesWithACacheWriteTheSameText) {
  expect_same_text(
      LanguageRun({"embedding 16 std=0.5", "repeat 2 {", "residual {", "rmsnorm", "linear 32 axis=last bias=off",
                   "attention heads=4 key_heads=2 causal rotary=100", "linear 16 axis=last bias=off", "}", "residual {",
                   "rmsnorm", "linear 64 axis=last bias=off", "glu silu", "linear 16 axis=last bias=off", "}", "}",
                   "rmsnorm", "linear outputs axis=last bias=off"}));
}

TEST(LanguageModel, NetworksOfTheZooWithACacheWriteTheSameText) {
  for (const ModelName name : {ModelName::gpt2, ModelName::llama}) {
    LanguageRun run;
    run.config.model.layers.clear();
    run.config.model.name = name;
    run.config.model.blocks = 2;
    run.config.model.width = 32;
    run.config.model.heads = 4;
    if (name == ModelName::llama) run.config.model.key_heads = 2;
    run.config.optim.lr = 0.01;
    expect_same_text(run);
  }
}

TEST(LanguageModel, ANetworkWithoutAttentionWritesTheSameText) {
  expect_same_text(LanguageRun({"embedding 16 std=0.5", "linear outputs axis=last"}));
}

TEST(LanguageModel, DocumentsHaveNoCacheAndTheLogSaysSo) {
  testing::internal::CaptureStderr();
  expect_same_text(
      LanguageRun({"documents separator=10 as=lines", "embedding 16 std=0.5 from=input", "linear 48 axis=last",
                   "attention heads=2 causal documents=lines", "linear outputs axis=last"}),
      false);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no key-value cache: layer 'lines' (documents)"),
            std::string::npos);
}

// The cache still holds what followed the common beginning.
TEST(LanguageModel, ATextThatGoesOnDifferentlyIsComputedFromThere) {
  const LanguageRun run;
  run.train();
  run.with_checkpoint([&](World& world, const CheckpointModel& model) {
    LanguageModel fast(world, run.config, model), slow(world, run.config, model, false);
    std::vector<std::int32_t> tokens(text.begin(), text.begin() + window);
    for (const auto& [size, changed] : {std::pair(window, 150L), {window, 20L}, {40L, 33L}, {40L, 0L}, {1L, 0L}}) {
      tokens.resize(std::size_t(size));
      ++tokens[std::size_t(changed)];
      for (int again = 0; again < 2; ++again) expect_close(fast.next(tokens), slow.next(tokens), 1e-5);
    }
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
  Layers layers = small_gpt;
  layers[4] = "attention heads=2";
  const LanguageRun run(layers);
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
