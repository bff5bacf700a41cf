#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "app/commands.hpp"
#include "app/plot.hpp"
#include "millrace/advisor/trials/measure.hpp"
#include "millrace/advisor/trials/rate_range.hpp"
#include "millrace/advisor/trials/tuning.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/base/units.hpp"
#include "millrace/config/flag_values.hpp"

namespace millrace::app {
namespace {

std::vector<Flag> tune_flags() {
  using enum Flag::Arity;
  const std::string range = "instead: find a learning rate (--lr-range)";
  std::vector<Flag> all{
      config_flag(),
      {"seconds", "S", "duration of each measurement, of which there are about 20 to 80", one, "0.4"},
      budget_flag("no trial starts after this time. Then the changes found so far are measured together and printed"),
      {"keep", "keys", "keys that are not searched: data.workers, ...", many},
      {"global-batch", "keep|free", "free: also search train.global_batch, up to 16 times its value", one, "keep"},
      {"out", "file", "also write the printed lines to this file"},
      {"lr-range", "", "train from fresh weights with a learning rate that grows with each step; nothing is saved",
       nothing, "", range},
      {"lr-from", "rate", "first learning rate", one, "1e-6", range},
      {"lr-to", "rate", "last learning rate, unless the loss diverges before", one, "10", range},
      {"lr-steps", "N", "number of steps", one, "200", range},
      {"plot", "file", "SVG file of the curve", one, "lr-range.svg", range},
  };
  return all;
}

constexpr std::string_view snippet_beginning = "# written by millrace tune\n";

// Rank 0 writes the file. If that fails, all ranks throw. Collective.
void write(World& world, const std::string& path, const std::string& text) {
  std::string problem;
  if (world.rank() == 0) try {
      write_file_atomically(path, text);
    } catch (const Error& error) {
      problem = error.what();
    }
  world.agree(Exit::data, problem);
}

// Refuses a path that cannot be written before minutes of measuring. Collective.
// beginning: of the files of this kind, the only ones that may be replaced.
void expect_writable(World& world, const std::string& flag, const std::string& path, std::string_view beginning) {
  std::string problem;
  if (world.rank() == 0) {
    std::error_code none;
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    if (std::filesystem::is_directory(path, none))
      problem = fmt::format("{} is a folder. name a file with --{}", path, flag);
    else if (::access(folder.c_str(), W_OK | X_OK) != 0)
      problem = fmt::format("cannot write to {} ({}). name another file with --{}", folder.string(),
                            std::strerror(errno), flag);
    else
      problem = message_of([&] { require_own_file(path, beginning); });
  }
  world.agree(Exit::data, problem);
}

TuneOptions options_of(const ParsedArguments& parsed) {
  TuneOptions out;
  out.seconds = flag_number(parsed, "seconds", 0.4, between(0.05, 60));
  out.budget = budget_of(parsed);
  const auto& known = tuned_keys();
  for (const std::string& written : parsed.list("keep")) {
    const std::string key = current_key_name(written);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      std::string all;
      for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
      fail(Exit::config, "command line: --keep: '{}' is not searched. one of {}", key, all);
    }
    out.keep.insert(key);
  }
  out.free_batch = flag_choice(parsed, "global-batch", Choices<bool>{{"keep", false}, {"free", true}});
  return out;
}

std::string brief(double rate) { return fmt::format("{:.2g}", rate); }

Plot plot_of(const RateSweep& sweep, const RateAdvice& advice) {
  if (sweep.loss.empty()) return {};
  Plot plot{"learning-rate range test: loss of each step, and smoothed",
            "learning rate",
            "loss",
            sweep.rate,
            sweep.loss,
            advice.smooth.empty() ? sweep.loss : advice.smooth,
            {},
            0};
  const auto [low, high] = std::minmax_element(plot.line.begin(), plot.line.end());
  const double start = plot.line.front();
  plot.top = std::min(*high, start + 0.5 * (start - *low) + 1e-9);
  if (advice.falls) {
    plot.marks.push_back({advice.steepest, "falls steepest at " + brief(advice.steepest)});
    plot.marks.push_back({advice.least, "smallest at " + brief(advice.least)});
    if (advice.rises > 0)
      plot.marks.push_back({advice.rises, "half of the decrease is lost at " + brief(advice.rises)});
  }
  return plot;
}

std::string advice_text(const RunConfig& config, const RateSweep& sweep, const RateAdvice& advice) {
  if (sweep.stopped) return "stopped on request: the curve is incomplete\n";
  if (!advice.falls)
    return "the loss does not fall by more than its noise: no rate is suggested. try more steps, another range or a "
           "larger batch\n";
  const double batch = double(config.train.global_batch),
               scale = config.optim.lr_batch > 0 ? config.optim.lr_batch / batch : 1;
  const std::string steepest = brief(advice.steepest * scale) + ", where the loss falls steepest";
  std::string out = advice.rises > 0
                        ? fmt::format(
                              "suggested: optim.lr = {}, a tenth of the rate at which half of the decrease is lost "
                              "again (Smith 2017); {}: {}\n",
                              brief(advice.suggested * scale),
                              advice.steepest < advice.suggested ? "more cautious" : "bolder", steepest)
                        : fmt::format("suggested: optim.lr = {} (Smith 2017); the loss did not rise again up to {}\n",
                                      steepest, brief(sweep.rate.back() * scale));
  if (scale != 1)
    out += fmt::format(
        "optim.lr_batch = {} is set, and the suggested rate is for that batch. it corresponds to {} at the global "
        "batch of {}\n",
        brief(config.optim.lr_batch), brief(advice.suggested), config.train.global_batch);
  return out +
         fmt::format("for {}, a global batch of {} and the other keys as configured, without schedule and warm-up\n",
                     value_text(config, "optim.name"), config.train.global_batch);
}

Exit range_test(World& world, const ParsedArguments& parsed) {
  const double from = flag_number(parsed, "lr-from", 1e-6, above(0));
  const double to = flag_number(parsed, "lr-to", 10.0, above(from));
  const int steps = flag_number(parsed, "lr-steps", 200, between(20, 1e6));
  const RunConfig config = load_config(world, parsed);
  const std::string path = parsed.get("plot", "lr-range.svg");
  expect_writable(world, "plot", path, plot_beginning);
  const RateSweep sweep = sweep_rates(world, config, from, to, steps);
  if (sweep.loss.size() < 20 && !sweep.stopped)
    fail(Exit::config,
         "command line: --lr-from: the loss diverged {} steps after {}, too soon for a result. start with a lower rate",
         sweep.loss.size(), brief(from));
  const RateAdvice advice = advise(sweep);
  const Plot plot = plot_of(sweep, advice);
  print(world, fmt::format("{}\n{}", plot_text(plot), advice_text(config, sweep, advice)));
  write(world, path, plot_svg(plot));
  print(world, fmt::format("the curve was written to {}\n", path));
  return Exit::ok;
}

}  // namespace

std::string tune_help() {
  return "usage: millrace tune -c FILE [-c FILE...] [--section.key VALUE...]\n"
         "       millrace tune -c FILE --lr-range\n\n" +
         flags_help(tune_flags()) +
         "\nSearches data.reader, data.workers, data.prefetch, comm.bucket_size, train.micro_batch, run.threads and\n"
         "model.fusion, on GPUs also cuda.nccl_max_ctas, cuda.nccl_cta_policy and cuda.nccl_windows, one after the\n"
         "other, by short trials against the best values so far. It starts with the keys that act on what limits the\n"
         "step most. At the end it measures all changes together against the configuration, "
         "and\n"
         "prints them as lines for a configuration file. No training is saved. Start it like the training: same "
         "ranks,\n"
         "same machine.\n\n" +
         keys_help({"checkpoint", "log", "account"});
}

Exit tune_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, tune_flags(), true);
  reject_positional(parsed);
  if (parsed.has("lr-range")) return range_test(world, parsed);
  for (const char* flag : {"lr-from", "lr-to", "lr-steps", "plot"})
    if (parsed.has(flag)) fail(Exit::config, "command line: --{} does nothing without --lr-range", flag);
  const TuneOptions options = options_of(parsed);
  const std::string path = parsed.get("out", "");
  if (!path.empty()) expect_writable(world, "out", path, snippet_beginning);
  const TuneOutcome outcome = tune(world, parsed, options);
  print(world, tuning_report(outcome));
  if (!path.empty()) {
    const bool gained = outcome.is_significant();
    write(world, path,
          std::string(snippet_beginning) +
              (gained ? config_snippet(outcome.changes, outcome.consequences) : "# nothing worth changing\n"));
  }
  return Exit::ok;
}

}  // namespace millrace::app
