// The keys that names of other programs stand for.
#pragma once
#include <string>

namespace millrace {

// What follows the last dot, in small letters, without '_' and '-': "batchsize" for "train.batch_size".
std::string bare_name(const std::string& written);
// The key that means the same as a name of PyTorch, Lightning, Keras or Hugging Face, whatever its section; "": none.
// typos: long names may have one wrong letter.
std::string key_of_foreign_name(const std::string& written, bool typos = false);
// Why there is no key of this name, and what to do; "": the name is not known.
std::string reason_without_key(const std::string& written);

}  // namespace millrace
