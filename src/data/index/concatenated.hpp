// Several data sets of the same rows, joined. Private to the data room.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "millrace/data/index/sample_layout.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

std::vector<std::string> names_of(const std::string& list, const char* key);  // "u,v,w"; Error(config) on empty ones

// The samples that these data sets make together, one or more, and how each lies. Error(data), with `path`, where their
// extents, types or layouts differ.
struct ConcatenatedSamples {
  SampleLayout layout;
  std::vector<ConcatenatedPart> parts;  // empty: one data set
};
ConcatenatedSamples concatenate_samples(const std::vector<io::DatasetInfo>& x, Layout asked,
                                        const std::optional<std::string>& attribute, const std::string& path);
// Values a row of joined targets, all floating point of one type. Error(data) else.
std::vector<ConcatenatedPart> concatenate_targets(const std::vector<io::DatasetInfo>& y, const std::string& path);

// Part `number` of x alone, with the pitch of whole samples; targets come with the first.
ShardIndex component_index(const ShardIndex&, std::size_t number);

// Of one shard: the data sets of y, one or more, and where each lies.
struct TargetPart {
  const std::string& name;
  std::int64_t count;  // values a row
  std::uint64_t offset;
  const io::ChunkedLayout* chunks;
};
std::vector<TargetPart> targets_of(const ShardIndex&, const Shard&);

}  // namespace millrace
