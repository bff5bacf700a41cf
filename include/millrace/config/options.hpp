// From configuration files and a command line to a RunConfig, and back. Nothing here touches MPI: the same bytes give
// the same RunConfig, or the same Error(config), on every rank.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "millrace/config/run_config.hpp"

namespace millrace {

struct ConfigFile {
  std::string path, text;
};

// The value of one key as the command line gave it; a list's words each on their own.
struct Override {
  std::string key;
  std::vector<std::string> words;
};

// Files in order, later ones win, then overrides. Fills run.dir (runs/<stem of the first file>) and text.
RunConfig resolve_config(const std::vector<ConfigFile>&, const std::vector<Override>&);

// The resolved configuration as a file that resolves to the same RunConfig. Hidden keys only when not at their default.
std::string print_config(const RunConfig&);

// How keys are written, then the keys with their defaults by group, but for the named groups; for --help.
std::string keys_help(const std::vector<std::string>& but = {});
// docs/configuration.md.
std::string configuration_page();

// The valid key closest to what somebody wrote.
std::string nearest_key(const std::string& written);

}  // namespace millrace
