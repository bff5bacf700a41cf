// What follows from the tokens of a row and one special token, `separator`:
//
//   src[0]   tokens, (N, S), in the stored type: u8, u16 or i32
//   begins   dst (N, S) int32: the position of the first token of the same document. Documents lie one after another
//            in a row (packed sequences); the separator is the last token of each of them
//   counts   dst (N, S) int32: `first` plus the number of tokens up to this one, itself among them, that are no
//            separator; `first` at a separator. These are the positions of RoBERTa, which do not count the padding
//   last     dst (N, S) in `dtype`, floating point: 1 at the last token that is no separator, otherwise 0. A row of
//            separators has the 1 at its first token
//
// There is no backward pass.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct DocumentsSpec {
  enum class Kind { begins, counts, last };
  Shape src;
  DType raw = DType::u8;  // type of src
  std::int64_t separator = 0;
  DType dtype = DType::i32;
  Kind kind = Kind::begins;
  std::int64_t first = 0;  // counts

  Shape dst() const { return src; }
  std::int64_t positions() const { return src[1]; }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
