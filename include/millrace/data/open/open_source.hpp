// Opens a data set: chooses a reader engine, and wraps retries and the node-local cache around it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "millrace/comm/world.hpp"
#include "millrace/data/index/local_cache_options.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/source.hpp"

namespace millrace {

// Two cases are collective: the MPI-IO engines, when they are made and destroyed; and a local cache, when it is made.
// The cache starts to copy with the first read. With mpio_collective, read queues read collectively, read() does not.
// Error(config): the requested engine cannot read these files; the message says which one can.
std::unique_ptr<Source> make_source(World&, const ShardIndex&, Reader, const FaultOptions& = {},
                                    const ChunkOptions& = {}, const LocalCacheOptions& = {});

// Finds the first of these samples with a stored value that is infinite or not a number, or a label that is no class:
// "sample 7 of the data, in a.h5, has a target that is not finite". Empty: there is none. Error(data): a sample cannot
// be read. Floating-point targets outside of [0, 1] are found too, in these parts of the values of a row.
struct BinaryTargets {
  std::int64_t begin = 0, count = 0;
};
std::string find_non_finite_sample(Source&, const ShardIndex&, std::span<const std::int64_t> ids,
                                   std::span<const BinaryTargets> = {});

}  // namespace millrace
