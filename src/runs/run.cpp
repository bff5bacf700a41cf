#include "millrace/runs/run.hpp"

#include <fmt/core.h>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::uintmax_t max_trace_bytes = 64u << 20;  // a larger trace would make the page too large

void read_trace(const RunFolder& folder, Run& run) {
  const std::uintmax_t bytes = folder.trace_bytes();
  if (bytes <= max_trace_bytes)
    run.trace = folder.trace();
  else
    run.trace_note = fmt::format("trace.json has {} MiB, too large for this page: open it in ui.perfetto.dev",
                                 (unsigned long long)(bytes >> 20));
}

}  // namespace

Run read_run(const std::filesystem::path& path) {
  const RunFolder folder(path);
  folder.require_run();
  Run run;
  run.folder = path;
  run.name = folder.name();
  run.config = folder.config();
  run.keys = parse_config_keys(run.config);
  run.record = folder.record();
  run.curves = read_curves(folder.metrics_file());
  std::error_code ignored;
  if (std::filesystem::exists(folder.validations_file(), ignored))
    run.validations = read_validations(folder.validations_file());
  run.summary = folder.summary();
  run.evaluations = folder.evaluations();
  run.layers = folder.layers();
  read_trace(folder, run);
  run.running = folder.in_use();
  run.outdated = run.summary && (run.running || run.summary->steps < run.curves.last || folder.summary_is_outdated());
  return run;
}

}  // namespace millrace
