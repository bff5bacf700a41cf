// Packed sequences: where the document of each token begins. Documents lie one after another in a row of tokens; the
// separator is the last token of each of them.
//
//   src[0]   tokens, (N, S), in the stored type: u8, u16 or i32
//   dst      (N, S) int32: the position of the first token of the same document. They never fall within a row
//
// There is no backward pass.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct DocumentsSpec {
  Shape src;
  DType raw = DType::u8;  // type of src
  std::int64_t separator = 0;
  DType dtype = DType::i32;

  Shape dst() const { return src; }
  std::int64_t positions() const { return src[1]; }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
