// Command lines of subcommands. Nothing is guessed: only whole option names count. Errors are Error(config), the same
// on every rank.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/options.hpp"

namespace millrace {

using Arguments = std::vector<std::string>;  // the command line after the name of the subcommand

// An option of a subcommand, besides configuration keys.
struct Flag {
  enum class Arity { nothing, one, many };
  std::string name;   // "checkpoint", or "config,c" with a short form
  std::string value;  // what stands for the value in --help; empty with Takes::nothing
  std::string help;
  Arity arity = Arity::one;
  std::string default_value = "";  // default, as text
  std::string group = "";          // title in --help, above the first of its flags
};

struct ParsedArguments {
  std::map<std::string, std::vector<std::string>> flags;  // those given
  std::vector<Override> keys;
  std::vector<std::string> positional;  // words that belong to no option
  bool has(const std::string& flag) const { return flags.count(flag) > 0; }
  std::string get(const std::string& flag, const std::string& otherwise) const;
  const std::vector<std::string>& list(const std::string& flag) const;
};

ParsedArguments parse_arguments(const Arguments&, const std::vector<Flag>&, bool with_keys);
std::string flags_help(const std::vector<Flag>&);
void reject_positional(const ParsedArguments&);  // Error(config) when there are words that belong to no option

// Runs `read`, naming the option in its complaint.
template <class F>
auto option(const char* name, F read) {
  try {
    return read();
  } catch (const Error& error) {
    fail(Exit::config, "command line: --", name, ": ", error.what());
  }
}

Flag config_flag();
// Rank 0 reads the files named by --config and all ranks resolve the same bytes, then `more`. Collective.
RunConfig load_config(World&, const ParsedArguments&, const std::vector<ConfigFile>& more = {});

}  // namespace millrace
