// All-reduce between hosts, with one rank of each.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <vector>

#include "millrace/base/types.hpp"

namespace millrace {

// Each rank receives its slice from all others, reduces it, and sends the result to all. That is 2 (p - 1)/p of the
// bytes in each direction on each link, as with a ring. Ranks are added in their order. Messages are short enough for
// TCP's eager protocol (btl_tcp_eager_limit is 64 KiB): longer ones ask first, and the answer queues behind the data
// that flows the same way, so that in the end one direction waits for the other. 16-bit types are sent as such, added
// in float32 and rounded once. Few elements are left to MPI_Allreduce, which needs fewer messages.
class DirectAllReduce {
 public:
  explicit DirectAllReduce(MPI_Comm comm);  // comm outlives this object and carries no other messages meanwhile
  // In place; all ranks get the same bits. wire: the type that is sent, f32, bf16 or f16.
  void sum(float* data, std::size_t count, DType wire);

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
    std::size_t size() const { return end - begin; }
  };
  Range slice(int rank, std::size_t count) const;
  std::size_t message_elements() const;
  template <class F>
  void each_message(Range r, F f) const;
  void send(const char* from, Range, int to, int tag);
  void receive(char* to, Range, int from, int tag, std::vector<MPI_Request>& pending);
  static void wait(std::vector<MPI_Request>&, std::size_t begin, std::size_t end);
  // The four parts of sum(), in order. `results`: all elements in the wire's type.
  void prepare(float* data, std::size_t count, DType wire);
  void post_receives(std::size_t count, char* results);
  void send_slices(std::size_t count);
  void reduce_own_slice(float* data, std::size_t count, DType wire, char* results);

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::size_t element_ = 4;  // bytes of an element as it is sent
  std::vector<char> send_buffer_, receive_buffer_, sums_;
  std::vector<void*> parts_;  // this rank's slice, as each rank sent it
  std::vector<MPI_Request> sends_, slices_, results_;
};

}  // namespace millrace
