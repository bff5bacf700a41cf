// The tokenizer that `millrace pack --tokenizer` stores in shards of tokens: a data set of bytes.
#pragma once
#include <string>

#include "millrace/data/index/shards.hpp"

namespace millrace {

constexpr const char* tokenizer_name = "/tokenizer";

// The text of the tokenizer in the first file; "" if there is none. Not collective. Error(data): it cannot be read.
std::string stored_tokenizer(const ShardIndex&);

}  // namespace millrace
