#include "comm/direct_all_reduce.hpp"

#include <algorithm>
#include <cstring>

#include "comm/peer_reduction.hpp"
#include "millrace/comm/mpi_check.hpp"

namespace millrace {
namespace {

constexpr std::size_t message_bytes = 60 << 10;  // including the header, less than the eager limit of 64 KiB
enum Tag { slice_tag, result_tag };

}  // namespace

DirectAllReduce::DirectAllReduce(MPI_Comm comm) : comm_(comm) {
  MR_MPI(MPI_Comm_rank(comm, &rank_));
  MR_MPI(MPI_Comm_size(comm, &size_));
  parts_.resize(std::size_t(size_));
}

// Slices begin at multiples of 16 elements.
void DirectAllReduce::cut_evenly(std::size_t count) {
  cuts_.clear();
  for (std::size_t i = 0; i < std::size_t(size_); ++i) cuts_.push_back(count * i / std::size_t(size_) / 16 * 16);
  cuts_.push_back(count);
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
  cut_evenly(count);
  prepare(data, wire);
  if (wire != DType::f32 && sums_.size() < count * element_) sums_.resize(count * element_);
  char* const results = wire == DType::f32 ? reinterpret_cast<char*>(data) : sums_.data();
  post_receives();
  post_result_receives(results);
  send_slices();
  reduce_own_slice(data, wire, results);
  wait(results_, 0, results_.size());
  wait(sends_, 0, sends_.size());
  if (wire == DType::f32) return;
  void* const all[] = {results};
  for (int r = 0; r < size_; ++r)
    if (const Range s = slice(r); r != rank_) reduce_peers_to_float(all, s.begin, s.end, wire, data + s.begin);
}

void DirectAllReduce::reduce_scatter(float* data, const std::vector<std::size_t>& cuts, DType wire) {
  element_ = size_of(wire);
  if (size_ == 1) return;
  cuts_ = cuts;
  prepare(data, wire);
  post_receives();
  send_slices();
  reduce_own_slice(data, wire, nullptr);
  wait(sends_, 0, sends_.size());
}

void DirectAllReduce::prepare(float* data, DType wire) {
  const Range own = slice(rank_);
  const std::size_t count = cuts_.back();
  const auto grow = [](std::vector<char>& v, std::size_t bytes) {
    if (v.size() < bytes) v.resize(bytes);
  };
  grow(send_buffer_, count * element_);
  grow(receive_buffer_, std::size_t(size_ - 1) * own.size() * element_);
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
void DirectAllReduce::post_receives() {
  each_message({0, slice(rank_).size()}, [&](Range r) {
    for (int i = 1; i < size_; ++i) {
      const int from = (rank_ + size_ - i) % size_;
      receive(static_cast<char*>(parts_[std::size_t(from)]), r, from, slice_tag, slices_);
    }
  });
}

void DirectAllReduce::post_result_receives(char* results) {
  for (int i = 1; i < size_; ++i) {
    const int from = (rank_ + size_ - i) % size_;
    each_message(slice(from), [&](Range r) { receive(results, r, from, result_tag, results_); });
  }
}

void DirectAllReduce::send_slices() {
  std::size_t longest = 0;
  for (int r = 0; r < size_; ++r) longest = std::max(longest, slice(r).size());
  for (std::size_t at = 0; at < longest; at += message_elements())
    for (int i = 1; i < size_; ++i) {
      const int to = (rank_ + i) % size_;
      const Range theirs = slice(to);
      if (theirs.begin + at < theirs.end)
        send(send_buffer_.data(), {theirs.begin + at, std::min(theirs.begin + at + message_elements(), theirs.end)}, to,
             slice_tag);
    }
}

// Reduces the elements of a message as soon as they have arrived from all ranks, and sends the result at once.
void DirectAllReduce::reduce_own_slice(float* data, DType wire, char* results) {
  const Range own = slice(rank_);
  const std::size_t others = std::size_t(size_ - 1);
  std::size_t arrived = 0;
  each_message({0, own.size()}, [&](Range r) {
    wait(slices_, arrived, arrived + others);
    arrived += others;
    float* const sum = data + own.begin + r.begin;
    reduce_peers_to_float(parts_, r.begin, r.end, wire, sum);
    if (!results) return;
    const Range there{own.begin + r.begin, own.begin + r.end};
    void* to[] = {results};
    if (wire != DType::f32) write_from_float(sum, to, there.begin, there.end, wire);
    for (int i = 1; i < size_; ++i) send(results, there, (rank_ + i) % size_, result_tag);
  });
}

}  // namespace millrace
