#include "text/utf8.hpp"

namespace millrace {

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return std::uint32_t(std::uint8_t(text[at + i])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0) return {replacement_character, 1, false};
  std::uint32_t code = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {replacement_character, i, false, true};
    // The second byte excludes overlong forms, surrogates and code points above 0x10FFFF.
    const std::uint32_t low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const std::uint32_t high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return {replacement_character, i, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, length};
}

}  // namespace millrace
