#include "millrace/data/scan/stored_tokenizer.hpp"

#include "millrace/base/error.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

std::string stored_tokenizer(const ShardIndex& index) {
  if (index.shards.empty()) return "";
  const io::File file = io::File::open(index.shards.front().path);
  if (!file.has(tokenizer_name)) return "";
  const io::DatasetInfo info = file.info(tokenizer_name);
  if (info.shape.size() != 1 || info.dtype != DType::u8)
    fail(Exit::data, "{}: '{}' is not a one-dimensional data set of uint8. remove it, or store a tokenizer.json in it",
         file.path(), tokenizer_name);
  std::string text(std::size_t(info.shape[0]), ' ');
  file.read_rows(tokenizer_name, 0, info.shape[0], DType::u8, text.data());
  return text;
}

}  // namespace millrace
