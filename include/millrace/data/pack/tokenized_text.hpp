// TokenizedText: the tokens of text files, in temporary files that the importer of tokens reads.
#pragma once
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/text/tokenizer.hpp"

namespace millrace {

class TokenizedText {
 public:
  // Rank 0 reads the files block by block and writes their tokens into the folder of the shards: one file for each
  // text, or with join one for all, with <|endoftext|> behind each text. Warns of invalid UTF-8. Error(data): a file
  // cannot be read or written. Error(config): join, but the tokenizer has no <|endoftext|>. Collective.
  TokenizedText(World&, const Tokenizer&, const std::vector<std::string>& texts, bool join, const PackOptions&);
  ~TokenizedText() { remove_files(); }  // not collective
  TokenizedText(const TokenizedText&) = delete;

  const std::vector<std::string>& files() const { return files_; }
  std::int64_t token_bytes() const { return token_bytes_; }  // 1, 2 or 4, as the vocabulary needs

 private:
  void remove_files() const noexcept;
  void write(const Tokenizer&, const std::vector<std::string>& texts, bool join) const;
  const bool writes_;
  std::int64_t token_bytes_;
  std::vector<std::string> files_;
};

}  // namespace millrace
