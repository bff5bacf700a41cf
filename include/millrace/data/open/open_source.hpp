// Opens a data set: chooses a reader engine, and wraps retries and local copies around it.
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

// Error(config), with what to do, where the engine asked for cannot read these files. Not collective, except where
// files are opened through MPI-IO, and closed, and where staging is wanted, which begins with the first reads. Of
// mpio_collective, reads() are read together, read() is not.
std::unique_ptr<Source> make_source(World&, const ShardIndex&, Reader, const FaultOptions& = {},
                                    const ChunkOptions& = {}, const LocalCacheOptions& = {});

// The first of these samples that is stored with something that is no finite number: "sample 7 of the data, in a.h5,
// has a target that is not finite"; "": none. Error(data).
std::string find_non_finite_sample(Source&, const ShardIndex&, std::span<const std::int64_t> ids);

}  // namespace millrace
