// The implementation of File. Private to the io room.
#pragma once
#include <hdf5.h>
#include <mpi.h>

#include <map>
#include <string>
#include <vector>

#include "io/handle.hpp"
#include "io/types.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {

struct OpenDataset {
  std::string name;        // absolute
  Handle id, type, space;  // space: its selection is changed by every transfer
  std::vector<hsize_t> shape;
  TypeInfo element;
  std::string unsupported_reason;    // why it cannot be read; empty: it can
  std::size_t row_elements() const;  // elements in one row
};

// Rows of a data set, and the memory that they are read into or written from.
struct Request {
  bool write;
  std::int64_t begin, count;
  DType memory;  // type of the elements in memory
  char* data;
  // Reads only. Not null: the request is for rows[begin], rows[begin + 1], ..., which ascend.
  const std::int64_t* rows = nullptr;
};

struct File::Impl {
  std::string path;
  Handle file;
  MPI_Comm comm = MPI_COMM_NULL;  // not null: MPI-IO driver; a duplicate that this file owns
  bool writable = false, converting = false;
  std::string failure;      // message of this rank's first failed write; empty: none
  bool can_reserve = true;  // false after fallocate has failed on this file system
  // Data sets stay open once used. A row is then read without a walk through the metadata. And some ranks alone may
  // write to a data set that every rank created: opening it could be a collective call.
  std::map<std::string, OpenDataset> open;
  std::string io_mode = "none";
  std::uint64_t bytes_read = 0, bytes_written = 0;

  bool parallel() const { return comm != MPI_COMM_NULL; }
  std::string where(const std::string& object) const { return path + ":" + object; }
  hid_t id() const;  // Error once the file is closed or abandoned
  OpenDataset& dataset(const std::string& name);
  OpenDataset& cache_dataset(const std::string& name, Handle id);
  void transfer(const std::string& name, const Request&, Transfer);

  // Collective on a parallel file. The ranks exchange their state before each collective operation. Returns the maximum
  // of `rounds`, and whether any rank's request is wrong. If a rank failed to write, or closes the file while others
  // use it, all ranks abandon the file and throw.
  struct Agreement {
    std::int64_t rounds, wrong;
  };
  Agreement agree(std::int64_t rounds, bool wrong);
  bool all_ranks_ok(bool leaving);  // collective; true: no rank failed, and all ranks leave or none does
  // Closes and empties the file without calls of HDF5, which would wait for the other ranks.
  void abandon() noexcept;
  std::string free_space_note() const;  // " (the file system has 0 B free)" or "": MPI-IO hides why a write failed
  void finish_writing();                // collective flush
  // Allocates the blocks of bytes that are about to be written, so that a full disk shows before a collective call.
  // Sets `failure`. Does nothing if the file system has no fallocate.
  void reserve(std::uint64_t offset, std::uint64_t bytes);
  ~Impl();

 private:
  struct TransferPlan;
  TransferPlan plan(const Request&, const OpenDataset&);
  void reserve_rows(const Request&, const OpenDataset&);
  Handle transfer_properties(const std::string& at, bool collective, bool scattered) const;
  std::string move_rows(Request, OpenDataset&, const TransferPlan&, bool collective, hid_t properties);
  std::int64_t maxima_[5] = {};  // result of the last exchange
  bool exchange(std::int64_t rounds, bool wrong, bool leaving);
};

MPI_Comm communicator_of(const World&);  // MPI_COMM_NULL without MPI
// Filters of a data set creation property list, with their parameters.
std::vector<FilterSpec> filters_of(hid_t dcpl, const std::string& where);
hsize_t user_block_of(hid_t file, const std::string& path);  // its size in bytes
// The name with a leading slash: "x" and "/x" are the same data set.
std::string absolute(const std::string& name);

}  // namespace millrace::io
