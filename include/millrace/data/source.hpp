// Source: sample ids -> bytes. read() is called by several workers at once.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "millrace/comm/world.hpp"
#include "millrace/data/shards.hpp"

namespace millrace {

class Source {
 public:
  virtual ~Source() = default;
  // Row i of x and y gets sample ids[i]. x: raw rows in the stored dtype, native byte order. y: int32 labels, or
  // float32 targets. Error(data) names the file, and the sample.
  virtual void read(std::span<const std::int64_t> ids, void* x, void* y) = 0;
  virtual std::string describe() const = 0;  // "direct: pread, 12 shards, page cache"
  virtual int max_workers() const { return 1 << 20; }
};

enum class Reader { automatic, direct, mpio };

// direct: own pread at the extents or chunks that HDF5 gave, chunks decoded here, any number of workers. mpio: H5Dread
// through MPI-IO, independent; one worker. automatic: direct where it can read every file, else the HDF5 library. Not
// collective, except mpio's open.
std::unique_ptr<Source> make_source(World&, const ShardIndex&, Reader);

}  // namespace millrace
