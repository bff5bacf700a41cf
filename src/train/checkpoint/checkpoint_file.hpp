// The file format of checkpoints: an HDF5 file, readable with h5py. It has one data set with a CRC-32 for each tensor,
// in the canonical layout, in the groups parameters/, moment1/, moment2/ and running/, the run state as JSON, and the
// data set model: the bytes of the ModelRecord as JSON.
//
// The ranks write the tensors without HDF5 and MPI-IO: rank 0 creates the file with all data sets, every rank writes
// its pieces at the offsets of the data sets, and rank 0 adds the checksums. Open MPI's MPI-IO would create shared
// memory and named semaphores, which fail or hang when TMPDIR or /dev/shm is full.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/io/hdf5.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/checkpoint_tensors.hpp"

namespace millrace {

// Creates the file with its data sets, writes the text of the model, and allocates the space of the tensors. Returns
// the offsets of the tensors in bytes. Error(data): it cannot be created, for example because the disk is full.
std::vector<std::int64_t> create_checkpoint_file(const std::filesystem::path&, const std::vector<NamedTensor>&,
                                                 const std::string& model);
// Adds the checksums of the tensors and the run state to a file whose tensors are written, and flushes it to the disk.
// Error(data): it cannot be written.
void seal_checkpoint_file(const std::filesystem::path&, const std::vector<NamedTensor>&,
                          const std::vector<std::uint32_t>& checksums, const RunState&);

// The model in words: its data, and one line for each operation.
std::string describe(const ModelRecord&);

// Reads the tensors of a file one after the other. The constructor verifies the metadata. Error(data): the file is
// damaged or not a checkpoint. Error(config): its tensors are not those of the network; without training, it may also
// have the moments of an optimizer.
class CheckpointReader {
 public:
  CheckpointReader(const std::filesystem::path&, const std::vector<NamedTensor>&, bool training);
  const RunState& run() const { return run_; }
  // Reads the rows [row, row + rows) of a tensor. All rows must be read in order; the last call compares the checksum.
  // Error(data): it is wrong.
  void read(const NamedTensor&, std::int64_t row, std::int64_t rows, float* out);

 private:
  std::string name_of(const NamedTensor&) const;  // in the file
  std::filesystem::path path_;
  io::File file_;
  RunState run_;
  std::uint32_t checksum_ = 0;  // of the rows read so far
};

// Error(data): the metadata of the file is damaged, or it is not a checkpoint.
CheckpointModel read_checkpoint_model(const std::filesystem::path&);

}  // namespace millrace
