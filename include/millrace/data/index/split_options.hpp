// SplitOptions: how the samples of one data set are divided into parts for training, validation and test.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

// rows: at random. labels: each class at random, so that all parts have the same shares of it. group: rows with the
// same value of a data set stay together.
enum class SplitBy { rows, labels, group };
enum class SplitPart { train, valid, test };

struct Fold {
  std::int64_t number = 0, of = 0;  // number: from 1; of = 0: no cross-validation
};

struct SplitOptions {
  std::vector<double> split = {};  // shares of training, validation and, if given, test; empty: there is no split
  SplitBy split_by = SplitBy::rows;
  std::string group = "group";  // data set with a value for each row
  Fold fold = {};               // the validation part is this one of equal parts of what is not for the test
  std::uint64_t split_seed = 1;
  bool splits() const { return !split.empty() || fold.of > 0; }
};

constexpr const char* name_of(SplitPart part) {
  return part == SplitPart::train ? "train" : part == SplitPart::valid ? "valid" : "test";
}

}  // namespace millrace
