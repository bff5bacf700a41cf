#include "train/checkpoint/weight_comparison.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

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

}  // namespace

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
