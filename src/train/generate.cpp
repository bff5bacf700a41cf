#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/text/text_codec.hpp"
#include "millrace/train/commands.hpp"
#include "train/evaluate.hpp"
#include "train/language_model.hpp"
#include "train/resume.hpp"
#include "train/sample_token.hpp"

namespace millrace {
namespace {

Tokenizer tokenizer_of(const CheckpointModel& model, const GenerateOptions& options) {
  const bool stored = model.record && !model.record->tokenizer.empty();
  if (stored && options.tokenizer)
    fail(Exit::config, "{} has a tokenizer, that of its training data. remove --tokenizer", model.path.string());
  if (options.tokenizer) return *options.tokenizer;
  if (!stored)
    fail(Exit::config,
         "{} has no tokenizer (its training data was not packed with --tokenizer). give the one that made the tokens "
         "with --tokenizer; `bytes` if each byte is a token",
         model.path.string());
  return Tokenizer::parse({model.path.string() + ": the tokenizer", model.record->tokenizer});
}

std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, const LanguageModel& network,
                                        const std::optional<std::string>& prompt) {
  std::vector<std::int32_t> tokens;
  if (prompt)
    tokens = encode(tokenizer, *prompt);
  else
    tokens = {tokenizer.end_of_text().value_or(tokenizer.token_of_byte('\n'))};
  if (std::int64_t(tokens.size()) < network.shortest())
    fail(Exit::config, "the prompt has {} tokens, but the network reads {}{}. give a longer --prompt", tokens.size(),
         network.shortest(), network.shortest() > 1 ? ", since it makes one prediction for a whole window" : "");
  for (const std::int32_t token : tokens)
    if (token >= network.vocabulary())
      fail(Exit::config,
           "the prompt has the token {} ('{}'), but the network knows only those below {}. change --prompt, or train "
           "with a larger data.vocabulary",
           token, TextDecoder(tokenizer).add(token), network.vocabulary());
  return tokens;
}

void write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

Exit generate(World& world, const RunConfig& config, const CheckpointChoice& choice, const GenerateOptions& options) {
  if (world.size() > 1)
    fail(Exit::config, "generate runs on one rank, but {} were started. start it without mpirun", world.size());
  const CheckpointModel model = find_checkpoint(world, choice);
  require_same_function(model, config);
  LanguageModel network(world, config, model);
  const Tokenizer tokenizer = tokenizer_of(model, options);
  std::vector<std::int32_t> tokens = encode_prompt(tokenizer, network, options.prompt);
  TextDecoder decoder(tokenizer);
  if (options.prompt)
    for (const std::int32_t token : tokens) write(decoder.add(token));
  const double began = steady_seconds();
  std::int64_t made = 0;
  for (; made < options.tokens; ++made) {
    const auto logits = network.next(tokens);
    // A network may have more outputs than the tokenizer has tokens, to be a round number.
    const auto known = logits.first(std::min(logits.size(), std::size_t(tokenizer.size())));
    const double random = random_for_token(options.seed, std::uint64_t(made));
    const std::int32_t token = sample_token(known, options.temperature, options.top_k, random);
    if (token == tokenizer.end_of_text()) break;
    tokens.push_back(token);
    write(decoder.add(token));
  }
  write(decoder.finish() + "\n");
  const double seconds = steady_seconds() - began;
  log::info(fmt::format("{} tokens in {} ({:.1f} tokens/s)", made, format_seconds(seconds),
                        double(made) / std::max(seconds, 1e-9)));
  return Exit::ok;
}

}  // namespace millrace
