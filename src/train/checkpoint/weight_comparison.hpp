// Compares the tensors of a file with those of a network, and says in one line how they differ.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/train/session/model_record.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {

class WeightComparison {
 public:
  explicit WeightComparison(const WeightTarget& target) : skip_(target.skip) {}
  bool skips(const std::string& name);  // notes that its pattern is used
  void missing(const std::string& name) { missing_.push_back(name); }
  void unknown(const std::string& name) { unknown_.push_back(name); }
  void other_shape(const std::string& name, const std::vector<std::int64_t>& in_file,
                   const std::vector<std::int64_t>& in_network);
  // Error(config), if there is any difference or a pattern of `skip` matches nothing.
  void require_equal(const std::filesystem::path& file) const;

 private:
  const std::vector<std::string>& skip_;
  std::vector<std::string> used_, missing_, unknown_, shapes_;
  std::string advice_;  // a pattern that would leave out the first difference
};

// Compares what weights do not show: heads, epsilons and groups of the layers that the network of the file and the
// target have in common, apart from `skip`. Error(config) names the first difference.
void require_same_settings(const std::filesystem::path& file, const ModelRecord&, const WeightTarget&);

}  // namespace millrace
