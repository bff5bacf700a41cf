// PredictionFile: the file that `millrace predict` writes, with one or more data sets of a row for each sample. All
// ranks write their rows of it. It has a temporary name until finish() gives it its own.
//
// HDF5: rank 0 creates the file with all data sets, and every rank writes at their offsets in the file, as for
// checkpoints (checkpoint_file.hpp has the reason). CSV, for small results: every rank collects its rows, and rank 0
// writes the table in the end.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "train/prediction_outputs.hpp"

namespace millrace {

struct PredictionTarget {
  std::filesystem::path path;
  bool overwrite = false;  // replace a file of an earlier prediction
  bool table() const { return path.extension() == ".csv"; }
};

class PredictionFile {
 public:
  virtual ~PredictionFile() = default;
  // Writes rows of data set `array`. Any thread of the rank, but one at a time. Error(data): it cannot be written.
  virtual void write(std::size_t array, std::int64_t first, std::int64_t rows, const char* data) = 0;
  // Collective. Error(data) on all ranks: a rank could not write its part. The file has not got its name then.
  virtual void finish() = 0;
  // Removes the temporary file after a failure. Not collective.
  virtual void discard() noexcept {}
};

// Error(data): a file is there that must not be replaced.
void check_prediction_path(const PredictionTarget&);

// The same on rank 0, for all ranks. Error(config): the name ends in neither .h5, .hdf5 nor .csv.
// For the start, before the work; finish() looks again. Collective.
void check_prediction_target(World&, const PredictionTarget&);

// step: of the checkpoint. Collective. Error(config): the results are too large for CSV. Error(data): the file cannot
// be created, for example because the disk is full.
std::unique_ptr<PredictionFile> make_prediction_file(World&, const PredictionTarget&, std::int64_t samples,
                                                     std::vector<PredictionArray>, std::int64_t step);

}  // namespace millrace
