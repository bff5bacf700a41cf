#include "app/top/styled_line.hpp"

namespace millrace::app {
namespace {

const char* code_of(Color c) {
  static const char* const codes[] = {"",         "\033[1m",  "\033[31m", "\033[32m",
                                      "\033[33m", "\033[34m", "\033[35m", "\033[36m"};
  return codes[int(c)];
}

}  // namespace

std::string StyledLine::text(int columns, bool colored) const {
  std::string out;
  int left = columns;
  for (const Piece& piece : pieces_) {
    std::size_t end = 0;
    while (end < piece.text.size()) {
      const bool begins = (static_cast<unsigned char>(piece.text[end]) & 0xc0) != 0x80;  // of a code point
      if (begins && left == 0) break;
      left -= begins;
      ++end;
    }
    const bool code = colored && piece.color != Color::none && end > 0;
    out += (code ? code_of(piece.color) : "") + piece.text.substr(0, end) + (code ? "\033[0m" : "");
    if (end < piece.text.size()) break;
  }
  return out;
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace millrace::app
