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

// An error message that begins with the name of a key, with the place in front where a file sets this key:
// "mine.cfg:7: data.crop_pad: ...". Of several lines `model.layers` the quoted one counts. Unchanged if the message
// begins otherwise, or if the last resolve_config() had the key from the command line or nowhere.
std::string with_place(const std::string& message);

// The value of one key in a file, "" without it. Other keys are not checked, and nothing is printed.
std::string value_in_file(const ConfigFile&, const std::string& name);

// The resolved configuration as the text of a file that resolves to the same RunConfig. Hidden keys are printed only if
// they differ from their default.
std::string print_config(const RunConfig&);

// For --help: how keys are written, then the most common keys with their defaults by group, except those of the groups
// in `omit`. With print_all_keys_in_help(), for --help-all: all keys.
std::string keys_help(const std::vector<std::string>& omit = {});
void print_all_keys_in_help();
// The text of docs/reference/configuration.md.
std::string configuration_page();

// The name of the key that is meant by an unknown name: the one that other programs call so, else the one that is
// spelled most alike.
std::string nearest_key(const std::string& written);
// What to do about an unknown name: "did you mean --train.global_batch?" with the dashes "--".
std::string suggestion(const std::string& written, const char* dashes = "");
// Levenshtein distance: insertions, deletions and replacements of single characters.
std::size_t edit_distance(const std::string&, const std::string&);

}  // namespace millrace
