// The keys in --help.
#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "millrace/config/keys.hpp"
#include "millrace/config/options.hpp"

namespace millrace {
namespace {

bool print_all_keys = false;

// What most configurations set.
bool is_common(const Key& key) {
  static const char* const common[] = {
      "run.dir",          "run.resume",         "run.seed",        "run.device",         "run.precision",
      "run.walltime",     "run.stop_margin",    "data.train",      "data.valid",         "data.x",
      "data.y",           "data.augment",       "data.workers",    "model.name",         "model.depth",
      "model.width",      "model.hidden",       "model.dropout",   "model.size",         "model.layers",
      "model.loss",       "train.epochs",       "train.steps",     "train.global_batch", "train.micro_batch",
      "train.patience",   "optim.name",         "optim.lr",        "optim.schedule",     "optim.warmup",
      "optim.momentum",   "optim.weight_decay", "optim.clip",      "comm.grad_dtype",    "comm.timeout",
      "checkpoint.every", "checkpoint.keep",    "checkpoint.best", "log.every",          "log.tensorboard"};
  return std::find(std::begin(common), std::end(common), key.name) != std::end(common);
}

}  // namespace

void print_all_keys_in_help() { print_all_keys = true; }

std::string keys_help(const std::vector<std::string>& omit) {
  static const RunConfig defaults;
  std::ostringstream out;
  out << "Keys with <format> and (default). In a file: [section] and key = value. The command line overrides files.\n"
         "Sizes: 64MiB, 512k. Durations: 90s, 10m, 1h30m, 01:30:00.\n";
  std::string group;
  std::size_t left = 0;
  for (const Key& key : keys()) {
    if (key.hidden() || std::find(omit.begin(), omit.end(), key.group()) != omit.end()) continue;
    if (!print_all_keys && !is_common(key)) {
      ++left;
      continue;
    }
    if (key.group() != group) out << "\n[" << (group = key.group()) << "] " << group_title(group) << "\n";
    const std::string default_value = join_words(key, key.get(defaults));
    const std::string head = fmt::format("  --{} <{}>", key.name, key.value_format);
    out << head << (default_value.empty() ? "" : fmt::format("  ({})", default_value)) << "\n      " << key.help
        << "\n";
  }
  if (left > 0)
    out << fmt::format("\n--help-all prints {} more keys. docs/reference/configuration.md has them too, and ", left)
        << "docs/reference/networks.md\nthe lines of model.layers.\n";
  return out.str();
}

}  // namespace millrace
