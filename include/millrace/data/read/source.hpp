// Source: reads samples by their ids. One implementation for each reader engine, and wrappers around them (retries,
// local copies). open_source.hpp makes them.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "millrace/data/index/faults.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

// The reads in flight of one worker. Used by one thread, except for stop().
//
// Example:
//   while (there_is_work || pending > 0) {
//     if (there_is_work && queue->can_submit()) {
//       queue->begin(next_ids, x, y);
//       ++pending;
//     } else {
//       queue->finish();
//       --pending;
//     }
//   }
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;  // waits for the reads in flight
  // Like Source::read, but may return before the read has ended. ids, x and y stay valid until finish() returns for
  // this read; finish() also throws its errors.
  virtual void begin(std::span<const std::int64_t> ids, void* x, void* y) = 0;
  // Sets the epoch of the reads that are submitted from now on; random crops depend on it.
  virtual void epoch(std::int64_t) {}
  virtual bool can_submit() const = 0;                // would one more begin() keep the storage busier?
  virtual void finish() = 0;                          // waits for the oldest read; it is over, even if this throws
  virtual std::int64_t skipped() const { return 0; }  // samples that FaultOptions left out of the last finished read
  virtual void stop() {}  // called by any thread: ends the waits between retries, and prevents further retries
};

class Source {
 public:
  virtual ~Source() = default;
  // Writes sample ids[i] to row i of x and y. x: values in the stored data type, in native byte order. y: int32 labels
  // or float32 targets. Thread-safe. Error(data) names the file and the sample.
  virtual void read(std::span<const std::int64_t> ids, void* x, void* y) = 0;
  // A queue for one worker. slots: the memory that every x will point into; it outlives the queue, and an engine may
  // register it with the kernel. The default reads one request after the other by read().
  virtual std::unique_ptr<ReadQueue> make_read_queue(std::span<char> slots);
  // Like read(), with the random crops of this epoch.
  virtual void read_epoch(std::int64_t epoch, std::span<const std::int64_t> ids, void* x, void* y) {
    (void)epoch;
    read(ids, x, y);
  }
  // The engine, what it reads, and why it was chosen: "mmap: contiguous data, 12 shards (auto: ...)".
  virtual std::string describe() const = 0;
  virtual DecodeStats decoded() const { return {}; }
  virtual int max_workers() const { return 1 << 20; }  // more workers are of no use
  // Opens a shard's file again by its path, because another file may be there now (a stale NFS handle, a local copy).
  // Other threads may be reading it. Error(data) names the file.
  virtual void reopen(std::size_t shard) { (void)shard; }
  virtual FaultStats faults() const { return {}; }        // since the start
  virtual LocalCacheStats staging() const { return {}; }  // of the node-local cache
};

// Reader engines. All give the same bytes.
enum class Reader {
  automatic,
  direct,  // pread through the page cache; workers decode chunks and encoded images
  mmap,    // files mapped into memory; contiguous data only
  uring,   // O_DIRECT, without the page cache, many reads in flight by io_uring or threads; contiguous data only
  mpio,    // H5Dread through MPI-IO with independent transfers; one worker
  mpio_collective  // H5Dread through MPI-IO with collective transfers of all ranks; one thread for each data set
};
inline bool uses_mpi_io(Reader r) { return r == Reader::mpio || r == Reader::mpio_collective; }

// How chunked data is read without the HDF5 library.
struct ChunkOptions {
  std::uint64_t cache_bytes = 256u << 20;  // of decoded chunks that are kept
  // For samples that are read in the order of the files: a thread that would wait for a chunk, because another thread
  // decodes it, decodes the next chunk instead.
  bool decode_ahead = true;
};

}  // namespace millrace
