// Names from files that another program wrote, for messages and terminals.
#pragma once
#include <cstdint>
#include <string>

namespace millrace {

// The text with a question mark in place of each byte of a control character (also those of Latin-1 in UTF-8), which
// could end the line or steer a terminal. At most so many bytes.
inline std::string printable(std::string text, std::size_t most = 100) {
  if (text.size() > most) text.resize(most);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = std::uint8_t(text[i]);
    const bool latin = i > 0 && std::uint8_t(text[i - 1]) == 0xc2 && byte >= 0x80 && byte < 0xa0;
    if (latin) text[i - 1] = '?';
    if (latin || byte < 0x20 || byte == 0x7f) text[i] = '?';
  }
  return text;
}

}  // namespace millrace
