#include "text/split.hpp"

#include <vector>

#include "text/unicode_ranges.hpp"
#include "text/utf8.hpp"

namespace millrace {
namespace {

constexpr CodePoints space_ranges[] = {{0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                       {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                       {0x205F, 0x205F}, {0x3000, 0x3000}};

std::vector<CharacterClass> class_table() {
  std::vector<CharacterClass> table(0x110000, CharacterClass::other);
  const auto fill = [&](const auto& ranges, CharacterClass value) {
    for (const CodePoints& r : ranges)
      for (std::uint32_t code = r.first; code <= r.last; ++code) table[code] = value;
  };
  fill(letter_ranges, CharacterClass::letter);
  fill(digit_ranges, CharacterClass::digit);
  fill(space_ranges, CharacterClass::space);
  return table;
}

// The length of the contraction ('s, 'll) that begins at text[at]; 0: none does.
std::size_t contraction(std::string_view text, std::size_t at) {
  if (text[at] != '\'' || at + 1 == text.size()) return 0;
  const char first = text[at + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const std::string_view two = text.substr(at + 1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

struct Classified {
  CharacterClass kind;
  std::size_t bytes;
};

Classified classified(std::string_view text, std::size_t at) {
  const Character c = character_at(text, at);
  return {class_of(c.code), c.bytes};
}

}  // namespace

CharacterClass class_of(unsigned code_point) {
  static const std::vector<CharacterClass> table = class_table();
  return table[code_point];
}

std::size_t piece_end(std::string_view text, std::size_t at) {
  if (const std::size_t length = contraction(text, at)) return at + length;
  const std::size_t begin = at;
  Classified c = classified(text, at);
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Classified next = classified(text, at + 1);
    if (next.kind != CharacterClass::space) {
      ++at;
      c = next;
    }
  }
  const CharacterClass kind = c.kind;
  std::size_t last = at;  // where the last character of the run begins
  while (c.kind == kind) {
    last = at;
    at += c.bytes;
    if (at == text.size()) return at;
    c = classified(text, at);
  }
  // Of white space before another character, the last one is left for the next piece.
  return kind == CharacterClass::space && last > begin ? last : at;
}

}  // namespace millrace
