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
#include "millrace/base/units.hpp"
#include "millrace/config/key_types.hpp"

namespace millrace::app {
namespace {

std::vector<Flag> flags() {
  using enum Flag::Arity;
  const std::string rates = "the learning rate instead (--lr-range)";
  std::vector<Flag> all{
      config_flag(),
      {"seconds", "S", "of each measurement; there are about 20 to 80", one, "0.4"},
      budget_flag("no trial begins after it; what was found by then is measured as a whole and printed"),
      {"keep", "keys", "stay as they are: data.workers, ...", many},
      {"global-batch", "keep|free", "free: train.global_batch is searched too, up to 16 times as large", one, "keep"},
      {"out", "file", "also write the lines to be pasted there"},
      {"lr-range", "", "no search: train from fresh weights with a rate that grows from step to step, and keep nothing",
       nothing, "", rates},
      {"lr-from", "rate", "where the learning rate begins", one, "1e-6", rates},
      {"lr-to", "rate", "and where it ends, unless the loss diverges before", one, "10", rates},
      {"lr-steps", "N", "in so many steps", one, "200", rates},
      {"plot", "file", "where the curve goes as a picture", one, "lr-range.svg", rates},
  };
  return all;
}

template <class T>
T number_of(const ParsedArguments& parsed, const char* flag, const char* otherwise, Range range) {
  return option(flag, [&] {
    const std::string text = parsed.get(flag, otherwise);
    const T value = parse_number<T>(text);
    range.check(double(value), text);
    return value;
  });
}

// Rank 0 writes, and all fail with it.
void write(World& world, const std::string& path, const std::string& text) {
  std::string problem;
  if (world.rank() == 0) try {
      write_file_atomically(path, text);
    } catch (const Error& error) {
      problem = error.what();
    }
  world.agree(Exit::data, problem);
}

// Before minutes of measuring: what can't be written then.
void expect_writable(World& world, const std::string& flag, const std::string& path) {
  std::string problem;
  if (world.rank() == 0) {
    std::error_code none;
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    if (std::filesystem::is_directory(path, none))
      problem = cat(path, " is a folder. name a file by --", flag);
    else if (::access(folder.c_str(), W_OK | X_OK) != 0)
      problem = cat("cannot write to ", folder.string(), " (", std::strerror(errno), "). name another by --", flag);
  }
  world.agree(Exit::data, problem);
}

TuneOptions options_of(const ParsedArguments& parsed) {
  TuneOptions out;
  out.seconds = number_of<double>(parsed, "seconds", "0.4", between(0.05, 60));
  out.budget = budget_of(parsed);
  const auto& known = tuned_keys();
  for (const std::string& written : parsed.list("keep")) {
    const std::string key = current_key_name(written);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      std::string all;
      for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
      fail(Exit::config, "command line: --keep: '", key, "' is not searched. one of ", all);
    }
    out.keep.insert(key);
  }
  const std::string batch = parsed.get("global-batch", "keep");
  if (batch != "keep" && batch != "free")
    fail(Exit::config, "command line: --global-batch: '", batch, "' is none of keep|free");
  out.free_batch = batch == "free";
  return out;
}

std::string brief(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", rate);
  return text;
}

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
    plot.marks.push_back({advice.least, "least at " + brief(advice.least)});
    if (advice.rises > 0) plot.marks.push_back({advice.rises, "half of the fall is lost at " + brief(advice.rises)});
  }
  return plot;
}

std::string advice_text(const RunConfig& config, const RateSweep& sweep, const RateAdvice& advice) {
  if (sweep.stopped) return "asked to stop: the curve ends there\n";
  if (!advice.falls)
    return "the loss does not fall beyond its noise: no rate is suggested. more steps, another range, or a larger "
           "batch\n";
  const double batch = double(config.train.global_batch),
               scale = config.optim.lr_batch > 0 ? config.optim.lr_batch / batch : 1;
  const std::string steepest = brief(advice.steepest * scale) + ", where the loss falls steepest";
  std::string out =
      advice.rises > 0
          ? cat("suggested: optim.lr = ", brief(advice.suggested * scale),
                ", a tenth of where half of the fall is lost ", "again (Smith 2017); more cautious: ", steepest, "\n")
          : cat("suggested: optim.lr = ", steepest, " (Smith 2017); it did not rise again up to ",
                brief(sweep.rate.back() * scale), "\n");
  if (scale != 1)
    out += cat("optim.lr_batch = ", brief(config.optim.lr_batch), " is set: this is the rate for it, ",
               brief(advice.suggested), " at the global batch of ", config.train.global_batch, "\n");
  return out + cat("for ", value_text(config, "optim.name"), ", a global batch of ", config.train.global_batch,
                   " and the other keys as configured; schedule and warm-up were left out\n");
}

Exit range_test(World& world, const ParsedArguments& parsed) {
  const double from = number_of<double>(parsed, "lr-from", "1e-6", above(0));
  const double to = number_of<double>(parsed, "lr-to", "10", above(from));
  const int steps = number_of<int>(parsed, "lr-steps", "200", between(20, 1e6));
  const RunConfig config = load_config(world, parsed);
  const std::string path = parsed.get("plot", "lr-range.svg");
  expect_writable(world, "plot", path);
  const RateSweep sweep = sweep_rates(world, config, from, to, steps);
  if (sweep.loss.size() < 20 && !sweep.stopped)
    fail(Exit::config, "command line: --lr-from: the loss diverged ", sweep.loss.size(), " steps behind ", brief(from),
         ", too soon to say anything. begin lower");
  const RateAdvice advice = advise(sweep);
  const Plot plot = plot_of(sweep, advice);
  print(world, cat(plot_text(plot), "\n", advice_text(config, sweep, advice)));
  write(world, path, plot_svg(plot));
  print(world, cat("the curve as a picture: ", path, "\n"));
  return Exit::ok;
}

}  // namespace

std::string tune_help() {
  return "usage: millrace tune -c FILE [-c FILE...] [--section.key VALUE...]\n"
         "       millrace tune -c FILE --lr-range\n\n" +
         flags_help(flags()) +
         "\nSearches data.reader, data.workers, data.prefetch, comm.bucket_size, train.micro_batch, run.threads and "
         "model.fusion, one\n"
         "after the other, first those against what bounds the step most, by short trials beside the best so far; "
         "then\n"
         "measures all changes together beside the configuration, and prints them as lines to be pasted. Trains "
         "nothing\n"
         "that stays. Start it as the training: same ranks, same machine.\n\n" +
         keys_help({"checkpoint", "log", "account"});
}

Exit tune_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, flags(), true);
  reject_positional(parsed);
  if (parsed.has("lr-range")) return range_test(world, parsed);
  for (const char* flag : {"lr-from", "lr-to", "lr-steps", "plot"})
    if (parsed.has(flag)) fail(Exit::config, "command line: --", flag, " does nothing without --lr-range");
  const TuneOptions options = options_of(parsed);
  const std::string path = parsed.get("out", "");
  if (!path.empty()) expect_writable(world, "out", path);
  const TuneOutcome outcome = tune(world, parsed, options);
  print(world, tuning_report(outcome));
  if (!path.empty()) {
    const bool gained = outcome.is_significant();
    write(world, path, gained ? config_snippet(outcome.changes, outcome.consequences) : "# nothing worth changing\n");
  }
  return Exit::ok;
}

}  // namespace millrace::app
