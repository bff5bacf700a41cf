// HDF5 behind a small wall: files, data sets, attributes. Every failed call becomes an Error with HDF5's own error
// stack in one line. HDF5 here is not thread-safe: the room has one lock, so threads may read and write different
// Files, one after the other; but only one thread per rank may be in collective calls. Rows are the first extent.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/io/chunks.hpp"

namespace millrace::io {

// Call it before MPI starts: HDF5 then does not close itself in MPI_Finalize, where versions before 1.14 crash after a
// file that could not be closed (a full disk). Files close themselves.
void initialize_hdf5();
// The file that the HDF5 library is reading or writing on this thread, or null. For handlers of signals: HDF5 is known
// to crash on damaged files.
const char* current_hdf5_file();

struct DatasetInfo {
  std::string name;  // absolute path inside the file
  DType dtype = DType::u8;
  bool big_endian = false;
  std::vector<std::int64_t> shape;
  bool chunked = false;
  std::vector<std::int64_t> chunk;
  std::vector<std::string> filters;  // "gzip", "shuffle", ...
  std::optional<std::uint64_t>
      offset;  // byte offset of contiguous storage in the file; none: not contiguous or not allocated
  // Where elements are sequences of bytes of variable length: what the heap addresses in them count from. Such a data
  // set is refused all the same: its elements as stored (heap.hpp) are at offset, or in chunks.
  std::optional<std::uint64_t> global_heap_base;
  // The file that holds it, where an external link leads out of this one: offset and chunks are of that file.
  std::string external_link_file;
  std::string unsupported_reason;  // why this data set cannot be read, or empty
  // Refused for its 32-bit unsigned integers alone: read past HDF5, as dtype i32 of the same bits.
  bool uint32_as_int32 = false;
};

class File {
 public:
  static File open(const std::string& path);  // read only, serial driver, no locking
  // The same for read_rows() alone, of what HDF5 has to convert or to fetch from elsewhere too: integers of other
  // widths are i64 (what is larger becomes its largest value), floating point ones f64, and virtual data sets and those
  // in external files are read, where all of these are there. Offsets and chunks mean nothing.
  static File open_converting(const std::string& path);
  static File open_parallel(const std::string& path, World&);  // read only, MPI-IO driver; collective
  static File create(const std::string& path);                 // serial, truncates
  static File append(const std::string& path);                 // serial, one that is there, to be written to
  static File create_parallel(const std::string& path,
                              World&);  // MPI-IO driver, 4 KiB alignment; collective, truncates
  ~File();
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;

  const std::string& path() const;
  std::vector<std::string> datasets() const;  // absolute names, depth first
  bool has(const std::string& name) const;
  DatasetInfo info(const std::string& dataset) const;
  std::vector<ChunkInfo> chunks(
      const std::string& dataset) const;  // in row-major order of chunk coordinates; built in one pass
  ChunkedLayout chunked_layout(const std::string& dataset) const;  // with the chunks; Error(data) unless chunked

  // Contiguous, early-allocated, never-filled; collective on a parallel file. Parent groups are made.
  void create_dataset(const std::string& name, DType, const std::vector<std::int64_t>& shape);
  // Serial files. Chunks of chunk_rows whole rows each, to be stored by write_chunk(); the last may reach past the end.
  void create_chunked(const std::string& name, DType, const std::vector<std::int64_t>& shape, std::int64_t chunk_rows,
                      const FilterSpec&);
  // Chunk `number` of such a data set, as it is stored: of encode_chunk().
  void write_chunk(const std::string& dataset, std::int64_t number, const ByteBuffer& stored);
  // Rows [begin, begin+count) converted to `memory` type (integers clamp), C order; in pieces of 1 GiB. collective: all
  // ranks of a parallel file take part (count 0 allowed) in one agreed transfer, and a wrong request of one fails on
  // all; every rank moves its own bytes. On a serial file both are the same.
  enum class Transfer { independent, collective };
  void read_rows(const std::string& dataset, std::int64_t begin, std::int64_t count, DType memory, void* out,
                 Transfer = Transfer::independent) const;
  // These rows, in ascending order and each once, side by side in `out`; there may be none. Here collective is
  // MPI-IO's own: it may read at once what ranks want that lies near each other.
  void read_rows(const std::string& dataset, std::span<const std::int64_t> rows, DType memory, void* out,
                 Transfer = Transfer::independent) const;
  void write_rows(const std::string& dataset, std::int64_t begin, std::int64_t count, DType memory, const void* data,
                  Transfer = Transfer::independent);
  // What the last collective transfer really was, as HDF5 reports it: "contiguous collective, every rank its own
  // bytes", "independent (elements are converted)"; "none" before any.
  std::string last_io_mode() const;
  std::uint64_t bytes_read() const;  // by this rank's transfers, in the file's dtype
  std::uint64_t bytes_written() const;

  // Attributes of a data set or of the root group ("/"). Writing is collective on a parallel file.
  void set(const std::string& object, const std::string& key, const std::string& value);
  void set(const std::string& object, const std::string& key, double value);
  void set(const std::string& object, const std::string& key, std::int64_t value);
  void set(const std::string& object, const std::string& key, const std::vector<double>& values);
  std::optional<std::string> get_string(const std::string& object, const std::string& key) const;
  std::optional<std::vector<double>> get_numbers(const std::string& object, const std::string& key) const;
  std::optional<std::int64_t> get_int(const std::string& object, const std::string& key) const;

  // Collective on a parallel file, and an fsync there. A failed write of one rank reaches the others in that transfer
  // if it is collective, else in their next collective transfer, flush or close: the file is then given up, closed and
  // emptied on all ranks, and removing it is the caller's. So it is when one rank's File goes while others still write.
  void flush();
  void close();  // flushes; reports errors, unlike the destructor

 private:
  struct Impl;
  explicit File(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

// Up to so many chunks a data set are listed within seconds: before 1.14, HDF5 walks its index from the beginning for
// each.
std::int64_t fast_chunk_listing_limit();

std::string library_version();  // "HDF5 1.10.8, parallel, not thread-safe"

}  // namespace millrace::io
