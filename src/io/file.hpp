// What a File holds.
#pragma once
#include <hdf5.h>
#include <mpi.h>

#include <map>
#include <string>
#include <vector>

#include "io/handle.hpp"
#include "io/types.hpp"
#include "millrace/base/error.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {

struct OpenDataset {
  Handle id, type, space;  // space: scratch for selections
  std::vector<hsize_t> shape;
  TypeInfo element;
  std::string unsupported_reason;
  std::size_t row_elements() const;  // elements in one row
};

// Rows of a data set, to or from memory.
struct Request {
  bool write;
  std::int64_t begin, count;
  DType memory;
  char* data;
  const std::int64_t* rows = nullptr;  // not null: rows[begin], rows[begin + 1], ... instead, ascending; read only
};

struct File::Impl {
  std::string path;
  Handle file;
  MPI_Comm comm = MPI_COMM_NULL;  // not null: MPI-IO driver; this file's own duplicate
  bool writable = false, converting = false;
  std::string failure;      // of a write of this rank, in words
  bool can_reserve = true;  // the file system knows fallocate, as far as we have seen
  // Data sets stay open once used: a row is then read without a walk through the metadata, and a data set that every
  // rank created is written by some ranks alone without the collective call that opening could be.
  std::map<std::string, OpenDataset> open;
  std::string io_mode = "none";
  std::uint64_t bytes_read = 0, bytes_written = 0;

  bool parallel() const { return comm != MPI_COMM_NULL; }
  std::string where(const std::string& object) const { return path + ":" + object; }
  hid_t id() const;  // Error once closed or given up
  OpenDataset& dataset(const std::string& name);
  OpenDataset& cache_dataset(const std::string& name, Handle id);
  void transfer(const std::string& name, Request, Transfer);
  // Collective on a parallel file. Before whatever all ranks do together, they tell each other how they are: the most
  // of `rounds`; whether a rank's request is wrong. Where a rank failed to write, or gave the file up while others go
  // on, all abandon it and throw.
  struct Agreement {
    std::int64_t rounds, wrong;
  };
  Agreement agree(std::int64_t rounds, bool wrong);
  bool all_ranks_ok(bool leaving);      // collective: no rank failed, and all leave or none does
  void abandon() noexcept;              // without HDF5, which would wait for the other ranks; empties the file
  std::string free_space_note() const;  // " (the file system has 0 B free)" or "": MPI-IO hides why a write failed
  void finish_writing();                // flush, agreed upon
  // Takes the blocks for bytes that are about to be written, so that a full disk shows before a collective call. Sets
  // `failure`; does nothing where the file system cannot.
  void reserve(std::uint64_t offset, std::uint64_t bytes);
  ~Impl();

 private:
  std::int64_t most_[5] = {};  // of the last agreement
  bool exchange(std::int64_t rounds, bool wrong, bool leaving);
};

MPI_Comm communicator_of(const World&);  // null without MPI
// The Error's text, or "" when there was none.
template <class Function>
std::string message_of(Function&& function) {
  try {
    return function(), "";
  } catch (const Error& e) {
    return e.what();
  }
}

// Filters of a creation property list, with their parameters.
std::vector<FilterSpec> filters_of(hid_t dcpl, const std::string& where);
hsize_t user_block_of(hid_t file, const std::string& path);  // its bytes
// "x" and "/x" are one data set.
std::string absolute(const std::string& name);

}  // namespace millrace::io
