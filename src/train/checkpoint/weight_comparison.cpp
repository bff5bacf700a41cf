#include "train/checkpoint/weight_comparison.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/weights/safetensors.hpp"

namespace millrace {
namespace {

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(shown, names.size()); ++i) out += (i ? ", " : "") + names[i];
  return names.size() > shown ? out + fmt::format(" and {} more", names.size() - shown) : out;
}

// All parameters of a layer: "fc.*" of "fc.weight". The name itself if it has no layer.
std::string pattern_of(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == name.npos ? name : name.substr(0, dot) + ".*";
}

// The settings of a line of describe_function() that change the function but no shape: "heads=4", "epsilon=1e-05".
std::map<std::string, std::string> unseen_settings(const std::string& line) {
  std::map<std::string, std::string> out;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    while (!word.empty() && word.back() == ',') word.pop_back();
    const auto equals = word.find('=');
    if (equals == word.npos) continue;
    const std::string key = word.substr(0, equals);
    if (key == "heads" || key == "key_heads" || key == "epsilon" || key == "groups" || key == "theta")
      out[key] = word.substr(equals + 1);
  }
  return out;
}

// Of each layer of a function.
std::map<std::string, std::map<std::string, std::string>> unseen_settings(const std::vector<std::string>& function) {
  std::map<std::string, std::map<std::string, std::string>> out;
  for (const std::string& line : function) out[line.substr(0, line.find(" = "))] = unseen_settings(line);
  return out;
}

}  // namespace

void require_same_settings(const std::filesystem::path& file, const ModelRecord& record, const WeightTarget& target) {
  if (!has_comparable_function(record)) return;
  const auto theirs = unseen_settings(record.function), ours = unseen_settings(describe_function(target.graph));
  for (const auto& [layer, settings] : ours) {
    const auto found = theirs.find(layer);
    if (found == theirs.end() || found->second == settings) continue;
    if (std::ranges::any_of(target.skip, [&, name = layer + ".weight"](const std::string& pattern) {
          return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
        }))
      continue;
    for (const auto& [key, value] : settings)
      if (const auto other = found->second.find(key); other != found->second.end() && other->second != value)
        fail(Exit::config,
             "model.weights: {} is of another network: {} has {}={} there, {}={} here. correct the keys of model, or "
             "leave such layers out with model.weights_skip",
             file.string(), layer, key, other->second, key, value);
  }
}

bool WeightComparison::skips(const std::string& name) {
  bool out = false;
  for (const std::string& pattern : skip_) {
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
    if (std::ranges::find(used_, pattern) == used_.end()) used_.push_back(pattern);
    out = true;
  }
  return out;
}

void WeightComparison::other_shape(const std::string& name, const std::vector<std::int64_t>& in_file,
                                   const std::vector<std::int64_t>& in_network) {
  shapes_.push_back(fmt::format("{} is {}, not {}", name, shape_text(in_file), shape_text(in_network)));
  if (advice_.empty()) advice_ = pattern_of(name);
}

void WeightComparison::require_equal(const std::filesystem::path& file) const {
  for (const std::string& pattern : skip_)
    if (std::ranges::find(used_, pattern) == used_.end())
      fail(Exit::config, "model.weights_skip: {} matches neither a parameter of the network nor one of {}", pattern,
           file.string());
  std::string problem;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) problem += fmt::format("{}{}{}", problem.empty() ? "" : "; ", what, some_of(names));
  };
  add("", shapes_);
  add("it lacks ", missing_);
  add("it also has ", unknown_);
  if (problem.empty()) return;
  const std::string& first = !missing_.empty() ? missing_.front() : unknown_.empty() ? advice_ : unknown_.front();
  fail(Exit::config,
       "model.weights: {} does not fit the network: {}. correct the keys of model, or let such layers begin with fresh "
       "values: model.weights_skip = {}",
       file.string(), problem, advice_.empty() ? pattern_of(first) : advice_);
}

}  // namespace millrace
