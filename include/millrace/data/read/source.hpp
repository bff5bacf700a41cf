// Source: sample ids -> bytes. read() is called by several workers at once.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "millrace/data/index/faults.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

// Reads under way at once, of one worker; used by one thread.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;  // waits for those under way
  // As Source::read, but may return before. ids, x and y stay where they are until the read is finished; what fails is
  // thrown by finish().
  virtual void begin(std::span<const std::int64_t> ids, void* x, void* y) = 0;
  // Of what is begun from now on; matters where samples are drawn anew each epoch.
  virtual void epoch(std::int64_t) {}
  virtual bool can_submit() const = 0;  // is one more begin() of use?
  virtual void finish() = 0;            // waits for the oldest read that was begun; it is over, even when this throws
  virtual std::int64_t skipped() const { return 0; }  // samples of the read finished last that FaultOptions left out
  virtual void stop() {}  // by any thread: waits between tries end, and no more tries are made
};

class Source {
 public:
  virtual ~Source() = default;
  // Row i of x and y gets sample ids[i]. x: raw rows in the stored dtype, native byte order. y: int32 labels, or
  // float32 targets. Error(data) names the file, and the sample.
  virtual void read(std::span<const std::int64_t> ids, void* x, void* y) = 0;
  // A worker's own. `slots`: the memory that x will point into, which outlives it; engines may make it known to the
  // kernel. Unless a source does better: read(), one after the other.
  virtual std::unique_ptr<ReadQueue> make_read_queue(std::span<char> slots);
  // As read(), where samples are drawn anew each epoch: those of this one.
  virtual void read_epoch(std::int64_t epoch, std::span<const std::int64_t> ids, void* x, void* y) {
    (void)epoch;
    read(ids, x, y);
  }
  // The engine, what it reads, and who chose it: "mmap: contiguous data, 12 shards (auto: ...)".
  virtual std::string describe() const = 0;
  virtual DecodeStats decoded() const { return {}; }
  virtual int max_workers() const { return 1 << 20; }
  // The file under its name may be another than the one that is open (a stale handle). Others may be reading it.
  // Error(data) names it.
  virtual void reopen(std::size_t shard) { (void)shard; }
  virtual FaultStats faults() const { return {}; }  // so far
  virtual LocalCacheStats staging() const { return {}; }
};

// Engines. All give the same bytes.
enum class Reader {
  automatic,
  direct,          // pread through the page cache, chunks and encoded images decoded by the workers
  mmap,            // files mapped into memory; contiguous data
  uring,           // past the page cache (O_DIRECT), many reads under way, by io_uring or threads; contiguous data
  mpio,            // H5Dread through MPI-IO, independent; one worker
  mpio_collective  // the same by all ranks together; a thread of its own for each data set
};
inline bool uses_mpi_io(Reader r) { return r == Reader::mpio || r == Reader::mpio_collective; }

// Of own reads of chunked data.
struct ChunkOptions {
  std::uint64_t cache_bytes = 256u << 20;  // decoded chunks that are kept
  // Samples are asked for in the order of the files: a thread that would wait for another's chunk decodes the next one.
  bool decode_ahead = true;
};

}  // namespace millrace
