// Reads UTF-8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

struct Character {
  std::uint32_t code = 0;  // replacement_character if the bytes are invalid
  std::size_t bytes =
      0;  // of an invalid sequence: the bytes that one U+FFFD replaces, as in Python and the Unicode standard
  bool valid = true;
  bool cut_off = false;  // the text ends within a sequence that is valid so far
};
constexpr std::uint32_t replacement_character = 0xFFFD;
constexpr std::string_view replacement_text = "\xEF\xBF\xBD";

// The character that begins at text[at]. at < text.size().
Character character_at(std::string_view text, std::size_t at);

}  // namespace millrace
