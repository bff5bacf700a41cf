// Splits text into the pieces within which a byte-level tokenizer merges, by the pattern of GPT-2:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once
#include <string_view>

namespace millrace {

enum class CharacterClass : unsigned char { other, letter, digit, space };
CharacterClass class_of(unsigned code_point);  // code_point < 0x110000

// The end of the piece that begins at text[at]. text is valid UTF-8; at < text.size(). With more text behind this one,
// the piece is final if three more bytes follow its end, or if a piece of white space does not reach the end.
std::size_t piece_end(std::string_view text, std::size_t at);

}  // namespace millrace
