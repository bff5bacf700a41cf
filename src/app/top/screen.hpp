// Screen: lines on a terminal that are redrawn in place with ANSI escape codes. While it lives, the cursor is hidden,
// and keys are read as they are pressed.
#pragma once
#include <termios.h>

#include <chrono>
#include <string>
#include <vector>

namespace millrace::app {

struct TerminalSize {
  int columns = 80, rows = 24;
};
// The size of the terminal on standard output, or `fallback` when there is none. The environment variables COLUMNS and
// LINES take precedence.
TerminalSize terminal_size(TerminalSize fallback = {});
bool supports_redraw();   // standard output is a terminal that can move the cursor
bool supports_color();    // supports_redraw(), and NO_COLOR is not set
bool supports_unicode();  // judged by LC_ALL, LC_CTYPE and LANG

class Screen {
 public:
  Screen();
  ~Screen();  // leaves the last lines on the terminal
  Screen(const Screen&) = delete;
  // Replaces the lines drawn before. No line may be wider than the terminal; lines beyond its height are left out.
  void draw(const std::vector<std::string>& lines);
  // Waits that long for a key. 0: none was pressed, or standard input is no terminal in the foreground.
  char wait_for_key(std::chrono::milliseconds);

 private:
  int drawn_ = 0, columns_ = 0;
  bool reads_keys_ = false;
  termios settings_{};  // of the terminal before
};

}  // namespace millrace::app
