// What ranks do together with a range of elements.
#pragma once

namespace millrace {

// All ranks end up with the sum; each with its part of it; all with everyone's part.
enum class CollectiveOp { all_reduce, reduce_scatter, all_gather };

// Part of its bytes that each rank sends where `ranks` form a ring: nccl-tests' factor from algorithm to bus bandwidth.
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
  return "sum";
}

}  // namespace millrace
