#include "millrace/config/arguments.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>

#include "millrace/base/files.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

namespace po = boost::program_options;

constexpr std::uint64_t max_config_bytes = 16u << 20;

std::string long_name(const Flag& flag) { return flag.name.substr(0, flag.name.find(',')); }

po::options_description describe(const std::vector<Flag>& flags, bool with_keys) {
  po::options_description all;
  for (const Flag& flag : flags) {
    if (flag.arity == Flag::Arity::nothing)
      all.add_options()(flag.name.c_str(), "");
    else if (flag.arity == Flag::Arity::one)
      all.add_options()(flag.name.c_str(), po::value<std::string>(), "");
    else
      all.add_options()(flag.name.c_str(), po::value<std::vector<std::string>>()->multitoken(), "");
  }
  if (!with_keys) return all;
  for (const Key& key : keys()) {
    if (key.many == Key::Many::no)
      all.add_options()(key.name.c_str(), po::value<std::string>(), "");
    else
      all.add_options()(key.name.c_str(), po::value<std::vector<std::string>>()->multitoken(), "");
  }
  for (const auto* table : {&key_aliases(), &key_synonyms()})
    for (const KeyAlias& alias : *table)
      if (!all.find_nothrow(alias.old_name, false))  // a flag of the command comes first
        all.add_options()(alias.old_name.c_str(), po::value<std::string>(), "");
  return all;
}

[[noreturn]] void refuse_unknown(const std::string& option, const std::vector<Flag>& flags, bool with_keys) {
  std::string known;
  for (const Flag& flag : flags) known += (known.empty() ? "--" : ", --") + long_name(flag);
  constexpr std::size_t most_letters = 20;  // a longer name is no misspelled flag
  if (with_keys && option.size() <= most_letters)
    for (const Flag& flag : flags)
      if (edit_distance(option, long_name(flag)) <= 1)
        fail(Exit::config, "command line: unknown option --{}. did you mean --{}?", option, long_name(flag));
  if (with_keys) fail(Exit::config, "command line: unknown key {}. {}", option, suggestion(option, "--"));
  fail(Exit::config, "command line: unknown option --{}. one of {}", option, known);
}

// An option with one dash, such as -train.epochs, would be taken for the short option -t.
void refuse_single_dash(const Arguments& arguments, const std::vector<Flag>& flags, bool with_keys) {
  for (const std::string& argument : arguments) {
    if (argument.size() < 3 || argument[0] != '-' || !std::isalpha(static_cast<unsigned char>(argument[1]))) continue;
    const std::string name = argument.substr(1, argument.find('=') - 1), group = name.substr(0, name.find('.'));
    bool known = with_keys && name != group && *group_title(group), is_short = false;
    for (const Flag& flag : flags) {
      known = known || name == long_name(flag);
      is_short = is_short || flag.name.ends_with(std::string(",") + argument[1]);
    }
    if (known || (with_keys && find_key(name)))
      fail(Exit::config, "command line: {}: an option begins with two dashes. write --{}", argument, name);
    if (!is_short) refuse_unknown(name, flags, with_keys);
  }
}

void add_option(ParsedArguments& out, const po::option& option, const std::vector<Flag>& flags) {
  const std::string& name = option.string_key;
  const Flag* flag = nullptr;
  for (const Flag& each : flags)
    if (long_name(each) == name) flag = &each;
  if (flag) {
    auto& values = out.flags[name];
    if (!values.empty() && flag->arity != Flag::Arity::many)
      fail(Exit::config, "command line: --{} is given twice. keep one of them", name);
    values.insert(values.end(), option.value.begin(), option.value.end());
    return;
  }
  const Key* key = find_key(name);
  warn_if_renamed("command line", name, *key);
  const auto earlier =
      std::find_if(out.keys.begin(), out.keys.end(), [&](const Override& o) { return o.key == key->name; });
  if (earlier == out.keys.end() || key->many == Key::Many::no)
    out.keys.push_back({key->name, option.value});
  else
    earlier->words.insert(earlier->words.end(), option.value.begin(), option.value.end());
}

}  // namespace

std::string ParsedArguments::get(const std::string& flag, const std::string& default_value) const {
  const auto it = flags.find(flag);
  return it == flags.end() || it->second.empty() ? default_value : it->second.front();
}

const std::vector<std::string>& ParsedArguments::list(const std::string& flag) const {
  static const std::vector<std::string> none;
  const auto it = flags.find(flag);
  return it == flags.end() ? none : it->second;
}

ParsedArguments parse_arguments(const Arguments& arguments, const std::vector<Flag>& flags, bool with_keys) {
  using namespace po::command_line_style;
  const auto description = describe(flags, with_keys);
  refuse_single_dash(arguments, flags, with_keys);
  std::vector<po::option> options;
  try {
    options = po::command_line_parser(arguments)
                  .options(description)
                  .style(unix_style & ~allow_guessing)
                  .allow_unregistered()
                  .run()
                  .options;
  } catch (const po::error& error) {
    fail(Exit::config, "command line: {}", error.what());
  }
  ParsedArguments out;
  for (const auto& option : options) {
    if (option.position_key >= 0) {
      out.positional.insert(out.positional.end(), option.value.begin(), option.value.end());
      continue;
    }
    if (option.unregistered) {
      const std::string& written = option.string_key;
      refuse_unknown(written.substr(std::min(written.find_first_not_of('-'), written.size())), flags, with_keys);
    }
    add_option(out, option, flags);
  }
  return out;
}

std::string flags_help(const std::vector<Flag>& flags) {
  std::string out, group;
  for (const Flag& flag : flags) {
    if (flag.group != group) out += fmt::format("{}{}:\n", out.empty() ? "" : "\n", group = flag.group);
    const auto comma = flag.name.find(',');
    out += comma == std::string::npos ? "  " : "  -" + flag.name.substr(comma + 1) + ", ";
    out += "--" + long_name(flag);
    if (!flag.value.empty()) out += " <" + flag.value + ">";
    if (!flag.default_value.empty()) out += "  (" + flag.default_value + ")";
    out += "\n      " + flag.help + "\n";
  }
  return out;
}

void reject_positional(const ParsedArguments& parsed) {
  if (!parsed.positional.empty())
    fail(Exit::config, "command line: '{}' belongs to no option. write keys as --section.key VALUE",
         parsed.positional.front());
}

Flag config_flag() {
  return {.name = "config,c",
          .value = "file",
          .help =
              "configuration file. May be given several times; later files override earlier ones, and keys on the "
              "command line override all files",
          .arity = Flag::Arity::many};
}

RunConfig load_config(World& world, const ParsedArguments& parsed, const std::vector<ConfigFile>& more) {
  const auto& paths = parsed.list("config");
  if (paths.empty()) fail(Exit::config, "command line: no configuration file. give one with -c FILE");
  std::vector<ConfigFile> files;
  for (const auto& path : paths) {
    std::string text, problem;
    if (world.rank() == 0) try {
        text = read_file(path, max_config_bytes);
      } catch (const Error& error) {
        problem = error.what();
      }
    world.agree(Exit::config, problem);
    files.push_back({path, world.broadcast_string(text)});
  }
  files.insert(files.end(), more.begin(), more.end());
  RunConfig config = resolve_config(files, parsed.keys);
  watchdog::set_timeout(config.comm.timeout);
  return config;
}

std::optional<double> timeout_before_mpi(const Arguments& arguments) try {
  using namespace po::command_line_style;
  const std::string name = "comm.timeout";
  const Flag timeout{.name = name, .value = "", .help = ""};
  po::variables_map given;
  po::store(po::command_line_parser(arguments)
                .options(describe({config_flag(), timeout}, false))
                .style(unix_style & ~allow_guessing)
                .allow_unregistered()
                .run(),
            given);
  std::string value = given.count(name) ? given[name].as<std::string>() : "";
  if (value.empty() && given.count("config"))
    for (const auto& path : given["config"].as<std::vector<std::string>>())
      if (const auto later = value_in_file({path, read_file(path, max_config_bytes)}, name); !later.empty())
        value = later;
  if (value.empty()) return std::nullopt;
  RunConfig config;
  find_key(name)->set(config, {value});
  return config.comm.timeout;
} catch (const Error&) {
  return std::nullopt;
} catch (const po::error&) {
  return std::nullopt;
}

}  // namespace millrace
