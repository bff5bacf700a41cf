// What a File holds.
#pragma once
#include <hdf5.h>
#include <mpi.h>

#include <map>
#include <string>
#include <vector>

#include "handle.hpp"
#include "millrace/io/hdf5.hpp"
#include "types.hpp"

namespace millrace::io {

struct OpenDataset {
  Handle id, type, space;  // space: scratch for selections
  std::vector<hsize_t> shape;
  TypeInfo element;
  std::string refusal;
  std::size_t row_elements() const;  // elements in one row
};

// Rows of a data set, to or from memory.
struct Request {
  bool write;
  std::int64_t begin, count;
  DType memory;
  char* data;
};

struct File::Impl {
  std::string path;
  Handle file;
  MPI_Comm comm = MPI_COMM_NULL;  // not null: MPI-IO driver; borrowed from the World
  bool writable = false;
  // Data sets stay open once used: a row is then read without a walk through the metadata, and a data set that every
  // rank created is written by some ranks alone without the collective call that opening could be.
  std::map<std::string, OpenDataset> open;
  std::string io_mode = "none";
  std::uint64_t bytes_read = 0, bytes_written = 0;

  bool parallel() const { return comm != MPI_COMM_NULL; }
  std::string where(const std::string& object) const { return path + ":" + object; }
  hid_t id() const;  // Error(internal) once closed
  OpenDataset& dataset(const std::string& name);
  OpenDataset& remember(const std::string& name, Handle id);
  void transfer(const std::string& name, Request, Transfer);
  ~Impl();
};

// "x" and "/x" are one data set.
std::string absolute(const std::string& name);

}  // namespace millrace::io
