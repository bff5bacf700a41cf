// The attributes of files that describe their values: scale, offset, mean and standard deviation. Private to the data
// room.
#pragma once
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

// value = stored * scale + offset
struct Scaling {
  double scale = 1, offset = 0;
  bool operator==(const Scaling&) const = default;
};
// From the attributes `scale` and `offset` of the root group, else from `scale_factor` and `add_offset` of the data set
// (CF conventions). default_scale applies if the file has neither. Error(data) for attributes that are not a number.
Scaling scaling_of(const io::File&, const std::string& dataset, double default_scale);

// A hint for the message "values are not finite", depending on the transform; may be empty.
std::string not_finite_hint(Transform);

// Sets index.values from a file's attributes. index.sample and index.x must be set. Stored statistics of other values
// than the requested ones are converted; if that is impossible, they are dropped, and statistics_rejected_reason is
// set.
void read_values(ShardIndex&, const io::File&, const std::vector<std::string>& x, const DataOptions&);
// Error(data) if `other`, the index of the file at `path`, has another scale or offset.
void require_same_values(const ShardIndex&, const ShardIndex& other, const std::string& path);

}  // namespace millrace
