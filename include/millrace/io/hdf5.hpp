// The interface to the HDF5 library: files, data sets, attributes. Rows are the first dimension of a data set.
//
// Every failed call becomes an Error(data) with HDF5's own error stack in one line. HDF5 built with MPI is not
// thread-safe, so a lock serializes all calls: threads may use different Files. Only one thread per rank may make
// collective calls at a time (collective_schedule.hpp).
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

// Call it before MPI starts. HDF5 then does not close itself in MPI_Finalize, where versions before 1.14 crash if a
// file could not be closed (full disk). Files close themselves.
void initialize_hdf5();
// The file that the HDF5 library reads or writes on this thread, or null. For signal handlers: HDF5 is known to crash
// on damaged files.
const char* current_hdf5_file();
// Keeps other threads out of HDF5 until the process ends, for a thread that finalizes MPI. Waits at most 100 ms for a
// thread that is inside; one that hangs there stays.
void close_hdf5_for_other_threads();

struct DatasetInfo {
  std::string name;  // absolute path inside the file
  DType dtype = DType::u8;
  bool big_endian = false;
  std::vector<std::int64_t> shape;
  bool chunked = false;
  std::vector<std::int64_t> chunk;
  std::vector<std::string> filters;     // "gzip", "shuffle", ...
  std::optional<std::uint64_t> offset;  // of contiguous storage in the file, in bytes; none: chunked or not allocated
  // Set if the elements are byte sequences of variable length: the position in the file that their heap addresses count
  // from. read_rows() does not read such a data set; its elements as stored (global_heap.hpp) are at offset or in
  // chunks.
  std::optional<std::uint64_t> global_heap_base;
  // Set if the data set is behind an external link: the file that holds it. Offset and chunks then refer to that file.
  std::string external_link_file;
  std::string unsupported_reason;  // why read_rows() cannot read the data set; empty: it can
  // True if 32-bit unsigned integers are the only reason. Own reads may then take the bits as dtype i32.
  bool uint32_as_int32 = false;
};

class File {
 public:
  static File open(const std::string& path);  // read only, serial driver, no file locking
  // Read only, for pack: also reads what HDF5 has to convert or to fetch from other files. Integers of other widths are
  // read as i64 (clamped), other floating-point types as f64. Virtual data sets and data sets in external files are
  // read if all of their files exist. Offsets and chunks in DatasetInfo have no meaning.
  static File open_converting(const std::string& path);
  // Read only, MPI-IO driver; collective.
  static File open_parallel(const std::string& path, World&);
  // To write; an existing file is truncated. Serial driver.
  static File create(const std::string& path);
  // To add to an existing file. Serial driver.
  static File append(const std::string& path);
  // To write; an existing file is truncated. MPI-IO driver, 4 KiB alignment; collective.
  static File create_parallel(const std::string& path, World&);
  ~File();
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;

  const std::string& path() const;
  std::vector<std::string> datasets() const;  // absolute names, depth first
  bool has(const std::string& name) const;
  DatasetInfo info(const std::string& dataset) const;
  // In row-major order of chunk coordinates. Error(data) unless the data set is chunked.
  std::vector<ChunkInfo> chunks(const std::string& dataset) const;
  ChunkedLayout chunked_layout(const std::string& dataset) const;  // with the chunks; Error(data) unless chunked

  // Contiguous, allocated early, never filled. Creates parent groups. Collective on a parallel file.
  void create_dataset(const std::string& name, DType, const std::vector<std::int64_t>& shape);
  // Serial files only. Chunks of chunk_rows whole rows, which write_chunk() stores; the last may reach past the end.
  void create_chunked(const std::string& name, DType, const std::vector<std::int64_t>& shape, std::int64_t chunk_rows,
                      const FilterSpec&);
  // Stores chunk `number` of such a data set; `stored` is the result of encode_chunk().
  void write_chunk(const std::string& dataset, std::int64_t number, const ByteBuffer& stored);
  // Reads the rows [begin, begin + count), converted to the type `memory` (integers are clamped), in C order. Large
  // requests are split into calls of 1 GiB. collective: all ranks of a parallel file take part in one transfer,
  // possibly with count 0; a wrong request of one rank fails on all. On a serial file, both kinds are the same.
  enum class Transfer { independent, collective };
  void read_rows(const std::string& dataset, std::int64_t begin, std::int64_t count, DType memory, void* out,
                 Transfer = Transfer::independent) const;
  // Reads single rows, given in ascending order without repetition (possibly none), one after the other to `out`. A
  // collective transfer uses MPI-IO's collective buffering, which combines nearby requests of different ranks.
  void read_rows(const std::string& dataset, std::span<const std::int64_t> rows, DType memory, void* out,
                 Transfer = Transfer::independent) const;
  void write_rows(const std::string& dataset, std::int64_t begin, std::int64_t count, DType memory, const void* data,
                  Transfer = Transfer::independent);
  // How HDF5 performed the last collective transfer: "contiguous collective, every rank its own bytes", "independent
  // (elements are converted)"; "none" before the first.
  std::string last_io_mode() const;
  std::uint64_t bytes_read() const;  // by this rank; elements count in the file's dtype
  std::uint64_t bytes_written() const;

  // Attributes of a data set or of the root group ("/"). Writing is collective on a parallel file.
  void set(const std::string& object, const std::string& key, const std::string& value);
  void set(const std::string& object, const std::string& key, double value);
  void set(const std::string& object, const std::string& key, std::int64_t value);
  void set(const std::string& object, const std::string& key, const std::vector<double>& values);
  std::optional<std::string> get_string(const std::string& object, const std::string& key) const;
  std::optional<std::vector<double>> get_numbers(const std::string& object, const std::string& key) const;
  std::optional<std::int64_t> get_int(const std::string& object, const std::string& key) const;

  // Collective on a parallel file, where they also call fsync. The other ranks learn of a failed write in that transfer
  // if it is collective, else in their next collective transfer, flush or close. The file is then abandoned on all
  // ranks: closed and emptied; the caller removes it. The same happens if one rank destroys its File while others still
  // write.
  void flush();
  void close();  // flushes first; reports errors, which the destructor does not

 private:
  struct Impl;
  explicit File(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

// The number of chunks per data set that are listed within seconds. Before version 1.14, HDF5 walks its index from the
// beginning for each chunk.
std::int64_t fast_chunk_listing_limit();

std::string library_version();  // "HDF5 1.10.8, parallel, not thread-safe"

}  // namespace millrace::io
