#include "millrace/config/options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "config/key_places.hpp"
#include "millrace/config/key_types.hpp"

namespace millrace {
namespace {

namespace po = boost::program_options;

std::string trimmed(const std::string& text) {
  const char* blanks = " \t\r";
  const auto first = text.find_first_not_of(blanks);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

// A key in a file with its words. `where` is the file and line of its first occurrence.
struct Entry {
  const Key* key;
  std::string where;
  std::vector<std::string> words;
};

// Values of the command line are saved in config.cfg, where '#' begins a comment and a newline ends a value.
void require_printable(const std::string& where, const std::string& value) {
  if (value.find_first_of("#\n\r") != value.npos)
    fail(Exit::config, "{}: '{}' cannot contain # or a newline. rename the file, or link to it", where, value);
}

bool has_short_words(const Key& key) {
  if (key.many != Key::Many::words) return false;
  return key.value_format.find("number") != std::string::npos || key.value_format == "patterns";
}

std::vector<std::string> words_of(const Key& key, const std::string& value) {
  if (key.many == Key::Many::words) {
    std::string separated = value;
    if (has_short_words(key)) std::replace(separated.begin(), separated.end(), ',', ' ');
    return split_words(separated);
  }
  return value.empty() ? std::vector<std::string>{} : std::vector<std::string>{value};
}

[[noreturn]] void refuse_unknown(const std::string& where, const std::string& name) {
  constexpr std::size_t max_letters = 100;
  const std::string shown = name.size() > max_letters ? name.substr(0, max_letters) + "..." : name;
  fail(Exit::config, "{}: unknown key {}. {}", where, shown, suggestion(name));
}

// Calls f(line number, name, value) for each key of a file. Passes one line at a time to Boost's parser, so that every
// error message can name its line.
template <class F>
void for_each_key(const ConfigFile& file, F f) {
  static const po::options_description nothing;
  std::istringstream in(file.text);
  std::string section = "", line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    const std::string bare = trimmed(line.substr(0, line.find('#')));
    if (bare.empty()) continue;
    if (bare.front() == '[' && bare.back() == ']') {
      section = bare + "\n";
      continue;
    }
    std::istringstream one(section + bare + "\n");
    std::vector<po::option> parsed;
    try {
      parsed = po::parse_config_file(one, nothing, true).options;
    } catch (const po::error&) {
      fail(Exit::config, "{}:{}: '{}' is not a valid line. write key = value, [section] or # comment", file.path,
           number, bare);
    }
    for (const auto& option : parsed)
      f(number, option.string_key, trimmed(option.value.empty() ? "" : option.value.front()));
  }
}

std::vector<Entry> parse_file(const ConfigFile& file) {
  std::vector<Entry> entries;
  struct First {
    std::size_t line;
    std::string name;  // as it is written there
  };
  std::map<const Key*, First> first;
  for_each_key(file, [&](std::size_t number, const std::string& name, const std::string& value) {
    const std::string where = fmt::format("{}:{}", file.path, number);
    const Key* key = find_key(name);
    if (!key) refuse_unknown(where, name);
    warn_if_renamed(where, name, *key);
    note_place(key->name, value, {file.path, number});
    const auto [seen, is_first] = first.emplace(key, First{number, name});
    const auto words = words_of(*key, value);
    if (is_first) {
      entries.push_back({key, where, words});
      return;
    }
    if (key->many == Key::Many::no)
      fail(Exit::config, "{}: {} is given twice (first in line {}{}). keep one of them", where, name, seen->second.line,
           seen->second.name == name ? "" : " as " + seen->second.name);
    auto& old = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; })->words;
    old.insert(old.end(), words.begin(), words.end());
  });
  return entries;
}

void apply(RunConfig& config, const Entry& entry) {
  try {
    entry.key->set(config, entry.words);
  } catch (const Error& error) {
    throw Error(Exit::config, fmt::format("{}: {}: {}", entry.where, entry.key->name, error.what()));
  }
}

void check_schedule(const OptimOptions& o) {
  if (o.schedule == LrSchedule::plateau && o.gamma >= 1)
    fail(Exit::config, "optim.gamma: optim.schedule = plateau lowers the learning rate. set optim.gamma below 1");
  if (o.schedule != LrSchedule::one_cycle) return;
  if (o.warmup > 0)
    fail(Exit::config,
         "optim.warmup: optim.schedule = one_cycle has a rise of its own. set optim.warmup = 0, and the length of the "
         "rise with optim.pct_start");
  if (o.min_lr > 0)
    fail(Exit::config, "optim.min_lr: optim.schedule = one_cycle ends at optim.lr / 250000. set optim.min_lr = 0");
}

// Keys that need evaluations during the training.
void check_evaluation(const RunConfig& c) {
  const bool plateau = c.optim.schedule == LrSchedule::plateau;
  if (plateau && c.data.valid.empty())
    fail(Exit::config, "optim.schedule: plateau follows evaluations, but there is no data for them. set data.valid");
  if (plateau && !c.train.evaluate)
    fail(Exit::config, "optim.schedule: plateau follows evaluations, but train.evaluate = off. set it to on");
  if (c.train.evaluate_every > 0 && c.data.valid.empty())
    fail(Exit::config, "train.evaluate_every: there is nothing to evaluate on. set data.valid");
  if (c.train.patience > 0 && c.data.valid.empty())
    fail(Exit::config, "train.patience: there is nothing to evaluate on. set data.valid");
  if (c.train.patience > 0 && !c.train.evaluate)
    fail(Exit::config, "train.patience: train.evaluate = off. set it to on, or train.patience = 0");
}

// Checks of several keys together.
void check_combinations(const RunConfig& c) {
  check_schedule(c.optim);
  check_evaluation(c);
  if (c.train.micro_batch > c.train.global_batch)
    fail(Exit::config,
         "train.micro_batch ({}) is larger than train.global_batch ({}). lower the first or raise the second",
         c.train.micro_batch, c.train.global_batch);
  if (c.model.name == ModelName::layers && c.model.layers.empty())
    fail(Exit::config, "model.name = layers, but no model.layers is given. write one for each layer");
  if (c.model.name == ModelName::pt2 && c.model.file.empty())
    fail(Exit::config, "model.name = pt2, but model.file is not set. give the path of a network of torch.export.save");
  if (c.model.name != ModelName::pt2 && !c.model.file.empty())
    fail(Exit::config, "model.file: it is for model.name = pt2. set model.name, or remove the key");
  if (c.model.name != ModelName::pt2 && c.model.init != ModelInit::archive)
    fail(Exit::config,
         "model.init: it is for model.name = pt2. other networks begin with random weights, or with those of "
         "model.weights. set model.name, or remove the key");
  if (c.model.weights.empty() && !c.model.weights_skip.empty())
    fail(Exit::config, "model.weights_skip: it is for model.weights. set that too, or remove the key");
  if (c.run.walltime > 0 && c.run.stop_margin >= c.run.walltime)
    fail(Exit::config, "run.stop_margin is not smaller than run.walltime. lower the first or raise the second");
  if (const std::string& path = c.log.prometheus; !path.empty() && !path.ends_with(".prom"))
    fail(Exit::config,
         "log.prometheus: {} does not end in .prom (the textfile collector reads no other files). rename it", path);
}

}  // namespace

std::string value_in_file(const ConfigFile& file, const std::string& name) {
  std::string found;
  for_each_key(file, [&](std::size_t, const std::string& key, const std::string& value) {
    if (key == name) found = value;
  });
  return found;
}

RunConfig resolve_config(const std::vector<ConfigFile>& files, const std::vector<Override>& overrides) {
  RunConfig config;
  forget_places();
  for (const auto& file : files)
    for (const auto& entry : parse_file(file)) apply(config, entry);
  std::set<std::string> seen;
  for (const auto& given : overrides) {
    const std::string where = "command line";
    const Key* key = find_key(given.key);
    if (!key) refuse_unknown(where, given.key);
    warn_if_renamed(where, given.key, *key);
    if (!seen.insert(key->name).second)
      fail(Exit::config, "{}: --{} is given twice. keep one of them", where, key->name);
    Entry entry{key, where, {}};
    for (const auto& word : given.words) {
      require_printable(where, word);
      // The shell has already split a list of paths, so a blank belongs to the path.
      const bool split = key->many != Key::Many::words || has_short_words(*key);
      const auto words = split ? words_of(*key, trimmed(word)) : std::vector<std::string>{trimmed(word)};
      for (const auto& each : words)
        if (!each.empty()) entry.words.push_back(each);
    }
    apply(config, entry);
    forget_place(key->name);
  }
  if (config.run.dir.empty() && !files.empty())
    config.run.dir = "runs/" + std::filesystem::path(files.front().path).stem().string();
  check_combinations(config);
  config.text = print_config(config);
  return config;
}

std::string print_config(const RunConfig& config) {
  static const RunConfig defaults;
  std::string out, group;
  for (const Key& key : keys()) {
    const auto words = key.get(config);
    if (key.hidden() && words == key.get(defaults)) continue;
    if (key.group() != group) out += fmt::format("{}[{}]\n", group.empty() ? "" : "\n", group = key.group());
    if (key.many == Key::Many::lines)
      for (const auto& line : words) out += fmt::format("{} = {}\n", key.leaf(), line);
    else
      out += trimmed(fmt::format("{} = {}", key.leaf(), join_words(key, words))) + "\n";
  }
  return out;
}

}  // namespace millrace
