// The flags --tokenizer, --vocab and --merges, and what else `pack` does with texts.
#pragma once
#include "millrace/config/arguments.hpp"
#include "millrace/text/tokenizer.hpp"

namespace millrace::app {

// --tokenizer bytes|gpt2|FILE. Error(config): files are missing or not needed. Error(data): a file is damaged.
Tokenizer tokenizer_of(const ParsedArguments&);

// The flags of `pack` for texts.
std::vector<Flag> text_flags();
// Error(config): flags that do not go together.
void require_text_flags(const ParsedArguments&);

}  // namespace millrace::app
