// The operations that were started and are not finished yet, and their execution. Private to the comm room.
#pragma once
#include <cstddef>
#include <vector>

#include "comm/shared_memory.hpp"
#include "millrace/comm/collective.hpp"

namespace millrace {

struct Operation {
  const MappedRegion* region = nullptr;
  std::size_t begin = 0, count = 0;  // elements
  DType dtype = DType::f32;
  CommSpan span;
};

// A FIFO queue that keeps its memory, so that the step loop does not allocate.
class OperationQueue {
 public:
  OperationQueue() { items_.reserve(1024); }
  bool empty() const { return first_ == items_.size(); }
  const Operation& front() const { return items_[first_]; }
  void push_back(const Operation& op) { items_.push_back(op); }
  void pop_front() {
    if (++first_ == items_.size()) {
      items_.clear();
      first_ = 0;
    }
  }

 private:
  std::vector<Operation> items_;
  std::size_t first_ = 0;
};

// Executes this rank's part of operations that all ranks have started.
class Executor {
 public:
  Executor(int rank, int size, std::size_t chunk_bytes)
      : rank_(std::size_t(rank)), size_(std::size_t(size)), chunk_bytes_(chunk_bytes) {}
  void run(const Operation&);

 private:
  void reduce_chunk(const MappedRegion&, std::size_t begin, std::size_t end, DType);
  std::size_t chunk_elements(DType) const;
  bool scatters(const Operation&) const;
  void reduce_scatter_between_hosts(const MappedRegion&, std::size_t begin, std::size_t part, DType);
  void all_gather_between_hosts(const MappedRegion&, std::size_t begin, std::size_t part);
  std::size_t rank_, size_, chunk_bytes_;
  std::vector<float> scratch_;
  std::vector<std::size_t> cuts_;  // a member, so that the step loop does not allocate
  std::vector<char> gathered_;
};

}  // namespace millrace
