// The kinds of collective operations on a range of elements.
#pragma once

namespace millrace {

// all_reduce: every rank gets the sum. reduce_scatter: each rank gets its part of the sum. all_gather: every rank gets
// the parts of all ranks.
enum class CollectiveOp { all_reduce, reduce_scatter, all_gather };

// The bytes that each of `ranks` ranks in a ring sends, as a factor of the bytes of the operation. nccl-tests uses this
// factor to convert algorithm bandwidth to bus bandwidth.
constexpr double bus_factor(CollectiveOp op, double ranks) {
  return (op == CollectiveOp::all_reduce ? 2 : 1) * (ranks - 1) / ranks;
}

constexpr const char* name_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::reduce_scatter:
      return "reduce-scatter";
    case CollectiveOp::all_gather:
      return "all-gather";
    case CollectiveOp::all_reduce:
      break;
  }
  return "all-reduce";
}

}  // namespace millrace
