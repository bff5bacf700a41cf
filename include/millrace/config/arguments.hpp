// Parses the command lines of subcommands. Option names must be written in full. Errors are Error(config) and the same
// on every rank.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/options.hpp"

namespace millrace {

using Arguments = std::vector<std::string>;  // the command line after the name of the subcommand

// An option of a subcommand that is not a configuration key.
struct Flag {
  enum class Arity { nothing, one, many };
  std::string name;   // "checkpoint", or "config,c" with a short form
  std::string value;  // placeholder of the value in --help; empty with Arity::nothing
  std::string help;
  Arity arity = Arity::one;
  std::string default_value = "";  // shown in --help
  std::string group = "";          // title in --help; consecutive flags of one group share it
};

struct ParsedArguments {
  std::map<std::string, std::vector<std::string>> flags;  // the flags that were given, with their values
  std::vector<Override> keys;                             // the keys that were given, under their current names
  std::vector<std::string> positional;                    // words that belong to no option
  bool has(const std::string& flag) const { return flags.count(flag) > 0; }
  std::string get(const std::string& flag, const std::string& default_value) const;
  const std::vector<std::string>& list(const std::string& flag) const;
};

ParsedArguments parse_arguments(const Arguments&, const std::vector<Flag>&, bool with_keys);
std::string flags_help(const std::vector<Flag>&);
void reject_positional(const ParsedArguments&);  // Error(config) if there are words that belong to no option

// Calls `read` and adds the name of the option to the message of its Error.
template <class F>
auto option(const char* name, F read) {
  try {
    return read();
  } catch (const Error& error) {
    fail(Exit::config, "command line: --{}: {}", name, error.what());
  }
}

Flag config_flag();
// Resolves the files of --config, then `more`, then the keys of the command line. Rank 0 reads the files and broadcasts
// them, so that all ranks resolve the same bytes. Collective.
RunConfig load_config(World&, const ParsedArguments&, const std::vector<ConfigFile>& more = {});

// comm.timeout in seconds, as the command line or the files of --config give it, for the time before MPI. Not set if
// they do not, or cannot be read: load_config() reports errors.
std::optional<double> timeout_before_mpi(const Arguments&);

}  // namespace millrace
