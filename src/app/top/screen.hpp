// Screen: a picture on a terminal that is drawn anew in its place, by plain ANSI codes. The cursor is hidden while it
// lives.
#pragma once
#include <string>
#include <vector>

namespace millrace::app {

struct TerminalSize {
  int columns = 80, rows = 24;
};
// By COLUMNS and LINES where they are set, else as the terminal on standard output says, else `otherwise`.
TerminalSize terminal_size(TerminalSize otherwise = {});
bool supports_redraw();   // standard output is a terminal that can
bool supports_color();    // and NO_COLOR is not set
bool supports_unicode();  // by LC_ALL, LC_CTYPE or LANG

class Screen {
 public:
  Screen();
  ~Screen();  // the last picture stays
  Screen(const Screen&) = delete;
  // No line wider than the terminal; lines that do not fit below one another are left out.
  void draw(const std::vector<std::string>& lines);

 private:
  int drawn_ = 0, columns_ = 0;
};

}  // namespace millrace::app
