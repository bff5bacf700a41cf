#include "app/tokenizer_flags.hpp"

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace::app {

static Tokenizer::NamedText named_text(const std::string& path) {
  constexpr std::uint64_t max_bytes = 1u << 30;
  return {path, read_file(path, max_bytes)};
}

Tokenizer tokenizer_of(const ParsedArguments& parsed) {
  const std::string kind = parsed.get("tokenizer", "");
  for (const char* file : {"vocab", "merges"})
    if (parsed.has(file) != (kind == "gpt2"))
      fail(Exit::config, "command line: --tokenizer {}: {} --{}", kind,
           kind == "gpt2" ? "give its file with" : "remove", file);
  if (kind == "bytes") return Tokenizer::bytes();
  if (kind == "gpt2") return Tokenizer::gpt2(named_text(parsed.get("vocab", "")), named_text(parsed.get("merges", "")));
  return Tokenizer::parse(named_text(kind));
}

std::vector<Flag> text_flags() {
  const char* group = "tokens and text";
  using Arity = Flag::Arity;
  return {{.name = "tokenizer",
           .value = "bytes|gpt2|file",
           .help = "--x are texts, and are tokenized. bytes: each byte is a token; gpt2: byte pairs, by --vocab and "
                   "--merges; or a tokenizer.json of that kind. Stored in the shards, for millrace generate",
           .group = group},
          {.name = "vocab", .value = "file", .help = "--tokenizer gpt2: its vocab.json (encoder.json)", .group = group},
          {.name = "merges", .value = "file", .help = "--tokenizer gpt2: its merges.txt (vocab.bpe)", .group = group},
          {.name = "end-of-text",
           .value = "",
           .help = "with --tokenizer: join the texts to one, with the token <|endoftext|> behind each",
           .arity = Arity::nothing,
           .group = group}};
}

void require_text_flags(const ParsedArguments& parsed) {
  for (const char* flag : {"vocab", "merges", "end-of-text"})
    if (parsed.has(flag) && !parsed.has("tokenizer"))
      fail(Exit::config, "command line: --{} is for texts. give --tokenizer too", flag);
  if (!parsed.has("tokenizer")) return;
  for (const char* other : {"tokens", "y"})
    if (parsed.has(other))
      fail(Exit::config, "command line: --tokenizer makes the tokens, which are their own targets. remove --{}", other);
  if (!parsed.has("context"))
    fail(Exit::config, "command line: --tokenizer needs --context N, the number of tokens of a sample");
}

}  // namespace millrace::app
