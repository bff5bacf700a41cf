// The shared memory in which the ranks of a simulated NCCL communicator meet. Ranks are processes of one host, or
// threads. It is an anonymous file of the process that made the unique id, so nothing stays behind when processes are
// killed. As with NCCL, that process must live until all ranks have joined.
#pragma once
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace millrace::simulated {

constexpr int max_nccl_ranks = 64;

// One collective operation as a rank sees it. All ranks must see the same.
struct NcclOperation {
  enum Kind : int { all_reduce, reduce_scatter, all_gather, broadcast };
  Kind kind = all_reduce;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;
  std::uint64_t count = 0;
  int captured = 0;  // recorded into a graph
  // What both buffers are at least.
  enum Memory : int { plain, registered, window } memory = plain;
  // In windows: of the buffers that other ranks access, from the beginning of the window. Otherwise 0.
  std::uint64_t from_offset = 0, to_offset = 0;
  std::uint64_t ordinal = 0;  // among those of the communicator that are (not) captured
  bool operator==(const NcclOperation&) const = default;
  std::string describe() const;
};

// The registration of a window as a rank asks for it. All ranks must ask for the same.
struct NcclWindowCall {
  std::uint64_t bytes = 0;
  int flags = 0;
  bool operator==(const NcclWindowCall&) const = default;
};

// Data moves in steps: each rank posts its operation and a piece of data; when all are ready, each reads those of the
// others, and notes that it has taken them. A piece may be overwritten when all ranks have taken it.
class NcclLink {
 public:
  static constexpr std::size_t piece_bytes = 512 << 10;

  static bool make_id(ncclUniqueId&);
  // Joins the ranks of the id. False: the process that made the id is gone.
  bool join(const ncclUniqueId&, int size, int rank, int device);
  void leave();

  int size() const { return size_; }
  int rank() const { return rank_; }
  bool all_joined() const;
  int device_of(int rank) const;
  void release_id(const ncclUniqueId&) const;  // when all have joined

  char* piece(int rank) const;
  void post(const NcclOperation&, std::uint64_t step);
  bool all_ready(std::uint64_t step) const;
  const NcclOperation& operation_of(int rank) const;
  void take(std::uint64_t step);
  bool all_taken(std::uint64_t step) const;

  // Windows count from 1.
  void post_window(const NcclWindowCall&, std::uint64_t number);
  bool all_post_window(std::uint64_t number) const;
  const NcclWindowCall& window_call_of(int rank) const;
  void confirm_window(std::uint64_t number);  // this rank has compared the calls
  bool all_confirm_window(std::uint64_t number) const;

  void post_finalize();
  bool all_finalized() const;

 private:
  struct Slot;
  struct Area;
  template <class Condition>
  bool all(const Condition&) const;
  Area* area_ = nullptr;
  int size_ = 0, rank_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace millrace::simulated
