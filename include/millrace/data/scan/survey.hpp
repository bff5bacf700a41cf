// What the values of a data set look like, and what is suspicious about them.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

struct ValueRange {
  double smallest = std::numeric_limits<double>::infinity(),
         largest = -smallest;  // of finite values, as the next three
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  std::int64_t not_finite = 0;

  void add(double value);
  double mean() const { return count > 0 ? sum / double(count) : 0; }
  double deviation() const;
};

// Labels or targets. All rows are read if the data set is small; otherwise evenly spread ones.
struct TargetSurvey {
  std::int64_t rows = 0;                        // that were read
  std::map<std::int64_t, std::int64_t> labels;  // how often each occurs, negative ones too; not the ignored label
  ValueRange targets;
  std::string first_not_finite;  // "row 3 of a.h5"; empty: all targets are finite
  std::set<double> distinct;     // values of targets, at most max_distinct + 1 of them
  bool whole_numbers = true;     // all targets are
  bool one_hot = true;           // in each row one target is 1 and the others are 0

  static constexpr std::size_t max_distinct = 100;
};

// Samples as they are stored. Of a large data set, evenly spread rows.
struct SampleSurvey {
  std::int64_t rows = 0;  // that were read
  ValueRange values;
  std::int64_t rows_not_finite = 0;
  std::string first_not_finite;
};

// Whether the files hold rows of labels or targets that can be surveyed: not those of synthetic data, views and
// concatenated targets.
bool has_plain_targets(const ShardIndex&);
bool has_plain_samples(const ShardIndex&);
// Whether `millrace pack` wrote the first file.
bool written_by_pack(const ShardIndex&);
constexpr double no_deadline = std::numeric_limits<double>::infinity();
// Not collective. deadline: of steady_seconds(), after which no other block of rows is read; those that were read are
// spread over the data set, and at least one is. Error(data): a file cannot be read.
TargetSurvey survey_targets(const ShardIndex&, double deadline = no_deadline);
SampleSurvey survey_samples(const ShardIndex&, double deadline = no_deadline);

// "rows per class: 0: 50, 1: 48", "targets: from 0 to 3.5, mean 1.2, standard deviation 0.7".
std::string describe(const ShardIndex&, const TargetSurvey&);
std::string describe(const ShardIndex&, const SampleSurvey&);

// One line, with advice, for each thing that is probably a mistake; none if the data looks sound.
std::vector<std::string> concerns(const ShardIndex&, const TargetSurvey&);
std::vector<std::string> concerns(const ShardIndex&, const SampleSurvey&);
std::vector<std::string> layout_concerns(const ShardIndex&);  // from the shape alone
// What lies in the data set, and likely mistakes, as lines. Not collective.
std::string describe_values(const ShardIndex&);
// Whether all files hold samples and none has labels: data for predictions. Not collective.
bool lacks_labels(const DataOptions&);
// Of the labels or targets of these files, on rank 0. None if they are many, or cannot be read. Collective.
std::vector<std::string> target_concerns(World&, const std::vector<std::string>& files);

}  // namespace millrace
