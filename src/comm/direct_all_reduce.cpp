#include "comm/direct_all_reduce.hpp"

#include <algorithm>
#include <cstring>

#include "comm/peer_reduction.hpp"
#include "millrace/comm/mpi_check.hpp"

namespace millrace {
namespace {

constexpr std::size_t message_bytes = 60 << 10;  // including the header, less than the eager limit of 64 KiB
// In bytes. For shorter slices, the number of messages determines the time, not their size.
constexpr std::size_t min_slice = 16 << 10;
enum Tag { slice_tag, result_tag };

}  // namespace

DirectAllReduce::DirectAllReduce(MPI_Comm comm) : comm_(comm) {
  MR_MPI(MPI_Comm_rank(comm, &rank_));
  MR_MPI(MPI_Comm_size(comm, &size_));
  parts_.resize(std::size_t(size_));
}

// Slices begin at multiples of 16 elements.
DirectAllReduce::Range DirectAllReduce::slice(int rank, std::size_t count) const {
  const auto cut = [&](int i) { return i == size_ ? count : count * std::size_t(i) / std::size_t(size_) / 16 * 16; };
  return {cut(rank), cut(rank + 1)};
}

void DirectAllReduce::send(const char* from, Range r, int to, int tag) {
  MR_MPI(
      MPI_Isend(from + r.begin * element_, int(r.size() * element_), MPI_BYTE, to, tag, comm_, &sends_.emplace_back()));
}

void DirectAllReduce::receive(char* to, Range r, int from, int tag, std::vector<MPI_Request>& pending) {
  MR_MPI(MPI_Irecv(to + r.begin * element_, int(r.size() * element_), MPI_BYTE, from, tag, comm_,
                   &pending.emplace_back()));
}

void DirectAllReduce::wait(std::vector<MPI_Request>& pending, std::size_t begin, std::size_t end) {
  MR_MPI(MPI_Waitall(int(end - begin), pending.data() + begin, MPI_STATUSES_IGNORE));
}

std::size_t DirectAllReduce::message_elements() const { return message_bytes / element_; }

template <class F>
void DirectAllReduce::each_message(Range r, F f) const {
  for (std::size_t at = r.begin; at < r.end; at += message_elements())
    f(Range{at, std::min(at + message_elements(), r.end)});
}

void DirectAllReduce::sum(float* data, std::size_t count, DType wire) {
  element_ = size_of(wire);
  if (size_ == 1) return;
  if (count * element_ / std::size_t(size_) < min_slice) {
    MR_MPI(MPI_Allreduce(MPI_IN_PLACE, data, int(count), MPI_FLOAT, MPI_SUM, comm_));
    return;
  }
  prepare(data, count, wire);
  char* const results = wire == DType::f32 ? reinterpret_cast<char*>(data) : sums_.data();
  post_receives(count, results);
  send_slices(count);
  reduce_own_slice(data, count, wire, results);
  wait(results_, 0, results_.size());
  wait(sends_, 0, sends_.size());
  if (wire == DType::f32) return;
  void* const all[] = {results};
  for (int r = 0; r < size_; ++r)
    if (const Range s = slice(r, count); r != rank_) reduce_peers_to_float(all, s.begin, s.end, wire, data + s.begin);
}

void DirectAllReduce::prepare(float* data, std::size_t count, DType wire) {
  const Range own = slice(rank_, count);
  const auto grow = [](std::vector<char>& v, std::size_t bytes) {
    if (v.size() < bytes) v.resize(bytes);
  };
  grow(send_buffer_, count * element_);
  grow(receive_buffer_, std::size_t(size_ - 1) * own.size() * element_);
  if (wire != DType::f32) grow(sums_, count * element_);
  sends_.clear();
  slices_.clear();
  results_.clear();
  void* out[] = {send_buffer_.data()};
  write_from_float(data, out, 0, count, wire);
  char* inbox = receive_buffer_.data();
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) {
      parts_[std::size_t(r)] = send_buffer_.data() + own.begin * element_;
      continue;
    }
    parts_[std::size_t(r)] = inbox;
    inbox += own.size() * element_;
  }
}

// Every rank starts with another partner, so that the ranks do not all send to the same one.
void DirectAllReduce::post_receives(std::size_t count, char* results) {
  each_message({0, slice(rank_, count).size()}, [&](Range r) {
    for (int i = 1; i < size_; ++i) {
      const int from = (rank_ + size_ - i) % size_;
      receive(static_cast<char*>(parts_[std::size_t(from)]), r, from, slice_tag, slices_);
    }
  });
  for (int i = 1; i < size_; ++i) {
    const int from = (rank_ + size_ - i) % size_;
    each_message(slice(from, count), [&](Range r) { receive(results, r, from, result_tag, results_); });
  }
}

void DirectAllReduce::send_slices(std::size_t count) {
  const std::size_t longest = slice(size_ - 1, count).size();
  for (std::size_t at = 0; at < longest; at += message_elements())
    for (int i = 1; i < size_; ++i) {
      const int to = (rank_ + i) % size_;
      const Range theirs = slice(to, count);
      if (theirs.begin + at < theirs.end)
        send(send_buffer_.data(), {theirs.begin + at, std::min(theirs.begin + at + message_elements(), theirs.end)}, to,
             slice_tag);
    }
}

// Reduces the elements of a message as soon as they have arrived from all ranks, and sends the result at once.
void DirectAllReduce::reduce_own_slice(float* data, std::size_t count, DType wire, char* results) {
  const Range own = slice(rank_, count);
  const std::size_t others = std::size_t(size_ - 1);
  std::size_t arrived = 0;
  each_message({0, own.size()}, [&](Range r) {
    wait(slices_, arrived, arrived + others);
    arrived += others;
    float* const sum = data + own.begin + r.begin;
    reduce_peers_to_float(parts_, r.begin, r.end, wire, sum);
    const Range there{own.begin + r.begin, own.begin + r.end};
    void* to[] = {results};
    if (wire != DType::f32) write_from_float(sum, to, there.begin, there.end, wire);
    for (int i = 1; i < size_; ++i) send(results, there, (rank_ + i) % size_, result_tag);
  });
}

}  // namespace millrace
