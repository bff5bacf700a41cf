// Reads configuration files and command-line keys into a RunConfig, and prints a RunConfig. Nothing here uses MPI: the
// same bytes give the same RunConfig, or the same Error(config), on every rank.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "millrace/config/run_config.hpp"

namespace millrace {

struct ConfigFile {
  std::string path, text;
};

// A key on the command line with its values. Each value of a list is a word of its own.
struct Override {
  std::string key;
  std::vector<std::string> words;
};

// Applies the files in order, then the overrides; later values replace earlier ones. Sets run.dir to
// runs/<stem of the first file> if it is empty, and fills RunConfig::text.
RunConfig resolve_config(const std::vector<ConfigFile>&, const std::vector<Override>&);

// The value of one key in a file, "" without it. Other keys are not checked, and nothing is printed.
std::string value_in_file(const ConfigFile&, const std::string& name);

// The resolved configuration as the text of a file that resolves to the same RunConfig. Hidden keys are printed only if
// they differ from their default.
std::string print_config(const RunConfig&);

// For --help: how keys are written, then all keys with their defaults by group, except those of the groups in `omit`.
std::string keys_help(const std::vector<std::string>& omit = {});
// The text of docs/reference/configuration.md.
std::string configuration_page();

// The name of the key that is closest to a misspelled one.
std::string nearest_key(const std::string& written);
// Levenshtein distance: insertions, deletions and replacements of single characters.
std::size_t edit_distance(const std::string&, const std::string&);

}  // namespace millrace
