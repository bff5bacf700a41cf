// Concatenation of several HDF5 data sets with the same rows. Private to the data room.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "millrace/data/index/sample_layout.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

// Splits "u,v,w" into names. Error(config), naming the key, for an empty name.
std::vector<std::string> names_of(const std::string& list, const char* key);

// The layout of the samples that one or more data sets form together. Error(data), naming `path`, if their dimensions
// (other than the channels), types or layouts differ.
struct ConcatenatedSamples {
  SampleLayout layout;
  std::vector<ConcatenatedPart> parts;  // empty: one data set
};
ConcatenatedSamples concatenate_samples(const std::vector<io::DatasetInfo>& x, Layout requested,
                                        const std::optional<std::string>& attribute, const std::string& path,
                                        const TargetRow& y);
// The parts of concatenated targets, without the classes of labels. Error(data) unless each is floating point or one
// integer a row, and all have the same rows.
std::vector<ConcatenatedPart> concatenate_targets(const std::vector<io::DatasetInfo>& y, const std::string& path);

// Returns an index of only component `number` of x, whose values are read with the pitch of whole samples. The targets
// belong to component 0.
ShardIndex component_index(const ShardIndex&, std::size_t number);

// The HDF5 data sets of y, one or more, and the location of each in a shard.
struct TargetPart {
  const std::string& name;
  std::int64_t count;  // values per row
  std::uint64_t offset;
  const io::ChunkedLayout* chunks;
  DType dtype;
  bool big_endian, labels;
  std::int64_t ignored;  // label that does not count; -1: there is none
  std::size_t stored_bytes() const { return std::size_t(count) * size_of(dtype); }  // of a row
};
std::vector<TargetPart> targets_of(const ShardIndex&, const Shard&);

}  // namespace millrace
