// Divides the samples of a data set into parts for training, validation and test.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "millrace/comm/world.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/index/split_options.hpp"

namespace millrace {

struct RowSplit {
  std::shared_ptr<const RowSelection> train, valid, test;  // disjoint; the last two may be empty
  std::uint32_t crc32c = 0;                                // of the part of each sample
  std::string text;                                        // sizes, and the samples of each class; on rank 0
  const std::shared_ptr<const RowSelection>& part(SplitPart) const;
};

// A pure function of the number of samples, their labels or groups, the shares and the seed. It does not depend on the
// files that hold the samples, nor on the ranks or the machine. Each part has its share to one sample, of each class
// with SplitBy::labels. Parts of groups have theirs as nearly as whole groups allow. Each part with a share above 0
// gets a sample, of each class. Every rank keeps a bit for each sample and part. At the start rank 0 needs 2 bytes a
// sample, with labels or groups up to 22. Collective. Error(config): the options do not suit the data. Error(data): a
// file cannot be read.
RowSplit split_rows(World&, const ShardIndex&, const SplitOptions&);

}  // namespace millrace
