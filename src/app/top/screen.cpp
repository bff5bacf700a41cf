#include "app/top/screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace millrace::app {
namespace {

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

bool is_set(const char* variable) {
  const char* text = std::getenv(variable);
  return text && *text;
}

void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

TerminalSize terminal_size(TerminalSize size) {
  winsize reported{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &reported) == 0 && reported.ws_col > 0 && reported.ws_row > 0)
    size = {reported.ws_col, reported.ws_row};
  if (const int columns = number_in("COLUMNS"); columns > 0) size.columns = columns;
  if (const int rows = number_in("LINES"); rows > 0) size.rows = rows;
  return size;
}

bool supports_redraw() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) && !(kind && std::strcmp(kind, "dumb") == 0);
}

bool supports_color() { return supports_redraw() && !is_set("NO_COLOR"); }

bool supports_unicode() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (is_set(variable)) {
      const std::string locale = std::getenv(variable);
      return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
    }
  return false;
}

Screen::Screen() {
  put("\033[?25l");
  // A process in the background would be stopped if it changed the terminal.
  const bool foreground = ::isatty(STDIN_FILENO) && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
  if (!foreground || ::tcgetattr(STDIN_FILENO, &settings_) != 0) return;
  termios at_once = settings_;
  at_once.c_lflag &= ~tcflag_t(ICANON | ECHO);
  reads_keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &at_once) == 0;
}

Screen::~Screen() {
  if (reads_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &settings_);
  put("\033[?25h");
}

char Screen::wait_for_key(std::chrono::milliseconds longest) {
  pollfd input{reads_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
  if (::poll(&input, 1, int(longest.count())) <= 0) return 0;
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) == 1) return key;
  std::this_thread::sleep_for(longest);  // the terminal has gone
  return 0;
}

void Screen::draw(const std::vector<std::string>& lines) {
  const TerminalSize size = terminal_size();
  std::string out;
  if (drawn_ > 0) out = "\033[" + std::to_string(drawn_) + "A\r";
  if (columns_ != 0 && columns_ != size.columns) out = "\033[2J\033[H";  // the terminal may have wrapped the old lines
  const int count = std::min(int(lines.size()), std::max(1, size.rows - 1));
  for (int i = 0; i < count; ++i) out += lines[std::size_t(i)] + "\033[K\n";
  put(out + "\033[J");
  drawn_ = count;
  columns_ = size.columns;
}

}  // namespace millrace::app
