#include <filesystem>

#include "app/commands.hpp"
#include "millrace/base/files.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/report/report.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& report_flags() {
  static const std::vector<Flag> table = {
      {.name = "out",
       .value = "file",
       .help = "file for the page",
       .default_value = "RUN/report.html; ./report.html for several runs"},
      {.name = "overwrite",
       .value = "",
       .help = "has no effect: an older page of millrace is always replaced, another file never",
       .arity = Flag::Arity::nothing},
  };
  return table;
}

std::string make_page(const ParsedArguments& parsed) {
  namespace fs = std::filesystem;
  const std::vector<fs::path> runs(parsed.positional.begin(), parsed.positional.end());
  const fs::path out = parsed.has("out")  ? fs::path(parsed.get("out", ""))
                       : runs.size() == 1 ? runs.front() / "report.html"
                                          : fs::path("report.html");
  std::error_code none;
  if (fs::is_directory(out, none)) fail(Exit::config, "{} is a folder. name a file with --out", out.string());
  require_own_file(out, page_beginning);
  write_file_atomically(out, report_page(runs));
  return out.string();
}

}  // namespace

std::string report_help() {
  return "usage: millrace report RUN [RUN...] [--out FILE]\n\n" + flags_help(report_flags()) +
         "\nRUN: folder of a run (run.dir) that has ended, was interrupted or is still running. Writes one HTML page "
         "that needs\nno other files: loss, accuracy, throughput, time by phase, the sampled steps (log.profile_steps) "
         "and the findings.\nSeveral runs are shown side by side.\n";
}

Exit report_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, report_flags(), false);
  if (parsed.positional.empty()) fail(Exit::config, "command line: no run given. name its folder, such as runs/mine");
  print(world, make_page(parsed) + "\n");
  return Exit::ok;
}

}  // namespace millrace::app
