// What files say of their values: scale, offset, statistics. Private to the data room.
#pragma once
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

// value = stored * scale + offset, by the attributes of the root group (`scale`, `offset`) or of the data set
// (`scale_factor`, `add_offset` of the CF conventions); none: the usual.
struct Scaling {
  double scale = 1, offset = 0;
  bool operator==(const Scaling&) const = default;
};
Scaling scaling_of(const io::File&, const std::string& dataset, double usual_scale);

// What to say of values whose sums are not finite: "" or a word on the transform.
std::string not_finite(Transform);

// Of a file whose sample, type and parts are known: scale, offset, mean and std into the index. Statistics of
// other values than those that are asked for are converted, or left out where they cannot be.
void read_values(ShardIndex&, const io::File&, const std::vector<std::string>& x, const DataOptions&);
// Error(data) where the values of another file, at `path`, mean something else.
void require_same_values(const ShardIndex&, const ShardIndex& other, const std::string& path);

}  // namespace millrace
