// Sums over hosts, of one rank of each. Private to this room.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <vector>

#include "millrace/base/types.hpp"

namespace millrace {

// Each rank is sent its slice by all others, adds up, and sends the sum to all: 2 (p - 1)/p of the bytes each way on
// each link, as with a ring. Hosts are added in their order. Messages are as short as TCP sends without asking first
// (btl_tcp_eager_limit is 64 KiB): of longer ones the answer to "may I send" queues behind what flows the same way, so
// that in the end one direction waits for the other. Numbers of 16 bits travel as such, are added in float32 and
// rounded once. Few numbers are left to MPI, which needs fewer messages.
class DirectAllReduce {
 public:
  explicit DirectAllReduce(MPI_Comm comm);  // outlives this; no other calls of it meanwhile
  // In place, the same bits everywhere; wire: f32, bf16 or f16.
  void sum(float* data, std::size_t count, DType wire);

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
    std::size_t size() const { return end - begin; }
  };
  Range slice(int rank, std::size_t count) const;
  void send(const char* from, Range, int to, int tag);
  void receive(char* to, Range, int from, int tag, std::vector<MPI_Request>& pending);
  static void wait(std::vector<MPI_Request>&, std::size_t begin, std::size_t end);

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::size_t element_ = 4;  // bytes of a number on its way
  std::vector<char> send_buffer_, receive_buffer_, sums_;
  std::vector<void*> parts_;  // of this rank's slice, by host
  std::vector<MPI_Request> sends_, slices_, results_;
};

}  // namespace millrace
