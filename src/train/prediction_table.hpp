// PredictionTable: predictions as CSV, for small results. The first column is the number of the sample.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "train/prediction_file.hpp"

namespace millrace {

class PredictionTable : public PredictionFile {
 public:
  static constexpr std::int64_t max_values = 1'000'000;
  // Error(config): there are more values, or they are no columns of a table.
  PredictionTable(World&, std::filesystem::path, std::int64_t samples, std::vector<PredictionArray>);
  void write(std::size_t array, std::int64_t first, std::int64_t rows, const char* data) override;
  void finish() override;

 private:
  std::string text() const;
  World& world_;
  const std::filesystem::path path_;
  const std::int64_t samples_;
  const std::vector<PredictionArray> arrays_;
  std::vector<std::size_t> begins_;  // of the columns of each array
  std::size_t columns_ = 0;
  std::vector<double> values_;  // (samples, columns); 0 where another rank has the row
};

}  // namespace millrace
