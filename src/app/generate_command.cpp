#include "app/commands.hpp"
#include "app/tokenizer_flags.hpp"
#include "millrace/base/error.hpp"
#include "millrace/config/flag_values.hpp"
#include "millrace/config/options.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& generate_flags() {
  static const std::vector<Flag> table = {
      {.name = "checkpoint",
       .value = "newest|best|file",
       .help = "which checkpoint of the run, best by checkpoint.best, or the path of any checkpoint",
       .default_value = "newest"},
      {.name = "prompt",
       .value = "text",
       .help = "the beginning of the text",
       .default_value = "<|endoftext|> or a line end"},
      {.name = "tokens",
       .value = "number",
       .help = "how many tokens to generate; the token <|endoftext|> ends the text earlier",
       .default_value = "200"},
      {.name = "temperature",
       .value = "number",
       .help = "below 1: more probable tokens are preferred; 0: always the most probable one",
       .default_value = "0.8"},
      {.name = "top-k", .value = "number", .help = "draw from this many most probable tokens", .default_value = "all"},
      {.name = "seed", .value = "number", .help = "seed of the random numbers", .default_value = "1"},
      {.name = "tokenizer",
       .value = "bytes|gpt2|file",
       .help = "for checkpoints without a tokenizer: that of their training data, as for millrace pack"},
      {.name = "vocab", .value = "file", .help = "--tokenizer gpt2: its vocab.json"},
      {.name = "merges", .value = "file", .help = "--tokenizer gpt2: its merges.txt"}};
  return table;
}

GenerateOptions generate_options(const ParsedArguments& parsed) {
  GenerateOptions out;
  if (parsed.has("prompt")) out.prompt = parsed.get("prompt", "");
  out.tokens = flag_number<std::int64_t>(parsed, "tokens", out.tokens, at_least(0));
  out.temperature = flag_number(parsed, "temperature", out.temperature, at_least(0));
  out.top_k = flag_number<std::int64_t>(parsed, "top-k", 0, at_least(1));
  out.seed = flag_number<std::uint64_t>(parsed, "seed", out.seed, at_least(0));
  if (parsed.has("tokenizer"))
    out.tokenizer = tokenizer_of(parsed);
  else if (parsed.has("vocab") || parsed.has("merges"))
    fail(Exit::config, "command line: --vocab and --merges are for --tokenizer gpt2. give it too");
  return out;
}

}  // namespace

std::string generate_help() {
  return "usage: millrace generate RUN_DIR|CHECKPOINT [--prompt TEXT] [options] [--section.key VALUE...]\n\n" +
         flags_help(generate_flags()) +
         "\nPrints the prompt and its continuation. The network must predict tokens (data.sample = tokens) at every\n"
         "position, from earlier tokens only; or one token for each window, and then the prompt needs a whole window.\n"
         "It reads the last data.window tokens. The tokenizer is in the checkpoint if the data was packed with\n"
         "--tokenizer. No data is read. Keys such as run.device, run.threads and run.precision are accepted.\n";
}

Exit generate_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, generate_flags(), true);
  const CheckpointChoice choice =
      take_checkpoint(parsed, "nothing to generate with. give the folder of a run or a checkpoint");
  reject_positional(parsed);
  const GenerateOptions options = generate_options(parsed);
  return generate(world, resolve_config({config_of_checkpoint(world, choice)}, parsed.keys), choice, options);
}

}  // namespace millrace::app
