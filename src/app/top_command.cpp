#include <chrono>

#include "app/commands.hpp"
#include "app/top/screen.hpp"
#include "app/top/top_view.hpp"
#include "millrace/base/units.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/system/signals.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& top_flags() {
  static const std::vector<Flag> table = {
      {.name = "once",
       .value = "",
       .help = "show the runs once and end; this is the default when the output is not a terminal",
       .arity = Flag::Arity::nothing},
      {.name = "every", .value = "duration", .help = "time between two updates", .default_value = "1s"},
  };
  return table;
}

std::vector<std::string> lines_of(std::vector<RunMonitor>& runs, ViewOptions look, int rows) {
  constexpr int lines_per_run = 10;
  look.brief = runs.size() > 1 && int(runs.size()) * lines_per_run > rows;
  std::vector<std::string> out;
  for (RunMonitor& run : runs) {
    if (!out.empty() && !look.brief) out.emplace_back();
    const auto lines = describe(run.poll(), look);
    out.insert(out.end(), lines.begin(), lines.end());
  }
  return out;
}

// False: the user wants to end.
bool wait_on(Screen& screen, double seconds) {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!stop_signal() && std::chrono::steady_clock::now() < end)
    if (screen.wait_for_key(50ms) == 'q') return false;
  return !stop_signal();
}

void show_until_stopped(std::vector<RunMonitor>& runs, double every, ViewOptions look) {
  try {
    Screen screen;
    do {
      const TerminalSize size = terminal_size();
      look.columns = size.columns;
      screen.draw(lines_of(runs, look, size.rows));
    } while (wait_on(screen, every));
  } catch (...) {  // an uncaught exception would leave the cursor hidden
    throw;
  }
}

}  // namespace

std::string top_help() {
  return "usage: millrace top [--once] RUN_DIR...\n\n" + flags_help(top_flags()) +
         "\nRUN_DIR: folder of a run (run.dir), on this host or another. The run may be running, have ended, or not "
         "have started\nyet. Shows until q or Ctrl-C: progress and time left, loss, samples/s, the step time by phase, "
         "the "
         "bottleneck, the last\ncheckpoint, and whether the run is alive. COLUMNS, LINES and NO_COLOR are respected.\n";
}

Exit top_command(World&, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, top_flags(), false);
  if (parsed.positional.empty()) fail(Exit::config, "command line: no run given. name its folder, such as runs/NAME");
  const double every = option("every", [&] { return parse_seconds(parsed.get("every", "1s")); });
  if (every <= 0) fail(Exit::config, "command line: --every: '{}' must be above 0s", parsed.get("every", ""));
  std::vector<RunMonitor> runs;
  for (const std::string& dir : parsed.positional) runs.emplace_back(dir);
  ViewOptions look;
  look.color = supports_color();
  look.unicode = supports_unicode();
  if (supports_redraw() && !parsed.has("once")) {
    show_until_stopped(runs, every, look);
    return Exit::ok;
  }
  look.columns = terminal_size({120, 0}).columns;
  std::string text;
  bool any = false;
  for (const std::string& line : lines_of(runs, look, 1 << 20)) text += line + "\n";
  for (RunMonitor& run : runs) any = any || run.view().state != RunStatus::absent;
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!any)
    fail(Exit::data, "no run.json in {}. name the folder (run.dir) of a run that was started",
         parsed.positional.front());
  return Exit::ok;
}

}  // namespace millrace::app
