// All-reduce and reduce-scatter between hosts, with one rank of each host.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <vector>

#include "millrace/base/types.hpp"

namespace millrace {

// Each of the p ranks receives its slice from all others, reduces it in rank order, and sends the result to all. As in
// a ring, 2 (p - 1)/p of the bytes pass each link in each direction. Messages are short enough for the eager protocol
// of Open MPI over TCP (btl_tcp_eager_limit is 64 KiB). Longer messages need a handshake, whose answer queues behind
// the data in the same direction, so that one direction waits for the other. 16-bit elements are sent as 16 bits, added
// in float32 and rounded once. Small ranges go through MPI_Allreduce in float32, which needs fewer messages. The
// reduce-scatter is the first half of this, so (p - 1)/p of the bytes pass each link.
class DirectAllReduce {
 public:
  // comm must outlive this object. No other messages may be sent over it meanwhile.
  explicit DirectAllReduce(MPI_Comm comm);
  // In bytes, per host. For shorter slices, the number of messages determines the time, not their size.
  static constexpr std::size_t min_slice = 16 << 10;
  // Sums in place. wire: the element type of the messages, f32, bf16 or f16. With 16 bits, the result may be more
  // exact on one rank than on another. After rounding it to `wire`, all ranks have the same bits.
  void sum(float* data, std::size_t count, DType wire);
  // Slice r of `data` begins at element cuts[r] and ends at cuts[r + 1]. Sums only the slice of this rank, in place;
  // the others stay. Each element gets the same bits as from sum(), but is not rounded to `wire`.
  void reduce_scatter(float* data, const std::vector<std::size_t>& cuts, DType wire);

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
    std::size_t size() const { return end - begin; }
  };
  Range slice(int rank) const { return {cuts_[std::size_t(rank)], cuts_[std::size_t(rank) + 1]}; }
  void cut_evenly(std::size_t count);
  std::size_t message_elements() const;
  template <class F>
  void each_message(Range r, F f) const;
  void send(const char* from, Range, int to, int tag);
  void receive(char* to, Range, int from, int tag, std::vector<MPI_Request>& pending);
  static void wait(std::vector<MPI_Request>&, std::size_t begin, std::size_t end);
  // The steps of sum(), in order. `results` receives all elements in the type `wire`; null: no results are exchanged.
  void prepare(float* data, DType wire);
  void post_receives();
  void post_result_receives(char* results);
  void send_slices();
  void reduce_own_slice(float* data, DType wire, char* results);

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::size_t element_ = 4;  // bytes of an element in a message
  std::vector<char> send_buffer_, receive_buffer_, sums_;
  std::vector<std::size_t> cuts_;  // slice r is [cuts_[r], cuts_[r + 1])
  std::vector<void*> parts_;       // by rank: that rank's values of this rank's slice
  std::vector<MPI_Request> sends_, slices_, results_;
};

}  // namespace millrace
