#include <chrono>
#include <thread>

#include "app/commands.hpp"
#include "app/top/screen.hpp"
#include "app/top/top_view.hpp"
#include "millrace/base/units.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/system/signals.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& flags() {
  static const std::vector<Flag> table = {
      {.name = "once",
       .value = "",
       .help = "show it once and end, as it does when its output is no terminal",
       .arity = Flag::Arity::nothing},
      {.name = "every", .value = "duration", .help = "from one look to the next", .default_value = "1s"},
  };
  return table;
}

std::vector<std::string> picture(std::vector<RunMonitor>& runs, ViewOptions look, int rows) {
  constexpr int lines_each = 10;
  look.brief = runs.size() > 1 && int(runs.size()) * lines_each > rows;
  std::vector<std::string> out;
  for (RunMonitor& run : runs) {
    if (!out.empty() && !look.brief) out.emplace_back();
    const auto lines = describe(run.poll(), look);
    out.insert(out.end(), lines.begin(), lines.end());
  }
  return out;
}

void wait_for(double seconds) {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!stop_signal() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(50ms);
}

void show_until_stopped(std::vector<RunMonitor>& runs, double every, ViewOptions look) {
  try {
    Screen screen;
    while (!stop_signal()) {
      const TerminalSize size = terminal_size();
      look.columns = size.columns;
      screen.draw(picture(runs, look, size.rows));
      wait_for(every);
    }
  } catch (...) {  // uncaught, nothing would show the cursor again
    throw;
  }
}

}  // namespace

std::string top_help() {
  return "usage: millrace top [--once] RUN_DIR...\n\n" + flags_help(flags()) +
         "\nRUN_DIR: folders of runs, on this host or another, that go on, have ended, or are not there yet. Shows "
         "them until\nCtrl-C: progress and time left, loss, samples/s, where a step's time goes, what bounds it, the "
         "last checkpoint, and\nwhether the run is alive. COLUMNS, LINES and NO_COLOR are obeyed.\n";
}

Exit top_command(World&, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, flags(), false);
  if (parsed.positional.empty()) fail(Exit::config, "command line: no run. give its folder, such as runs/NAME");
  const double every = option("every", [&] { return parse_seconds(parsed.get("every", "1s")); });
  if (every <= 0) fail(Exit::config, "command line: --every: '", parsed.get("every", ""), "' is not above 0s");
  std::vector<RunMonitor> runs;
  for (const std::string& dir : parsed.positional) runs.emplace_back(dir);
  ViewOptions look;
  look.color = supports_color(), look.unicode = supports_unicode();
  if (supports_redraw() && !parsed.has("once")) return show_until_stopped(runs, every, look), Exit::ok;
  look.columns = terminal_size({120, 0}).columns;
  std::string text;
  bool any = false;
  for (const std::string& line : picture(runs, look, 1 << 20)) text += line + "\n";
  for (RunMonitor& run : runs) any = any || run.view().state != RunStatus::absent;
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!any)
    fail(Exit::data, "no run.json in ", parsed.positional.front(), ". give the run.dir of a run that was started");
  return Exit::ok;
}

}  // namespace millrace::app
