// StyledLine: one line of text in several colors, cut to a width. Each code point counts as one column.
#pragma once
#include <string>
#include <vector>

namespace millrace::app {

enum class Color { none, bold, red, green, yellow, blue, magenta, cyan };

class StyledLine {
 public:
  StyledLine& add(std::string text, Color color = Color::none) {
    pieces_.push_back({std::move(text), color});
    return *this;
  }
  // At most `columns` wide, with ANSI color codes when `colored`.
  std::string text(int columns, bool colored) const;

 private:
  struct Piece {
    std::string text;
    Color color;
  };
  std::vector<Piece> pieces_;
};

std::string repeated(const std::string& text, int times);

}  // namespace millrace::app
