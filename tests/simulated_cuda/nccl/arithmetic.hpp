// The arithmetic of the simulated NCCL.
#pragma once
#include <nccl.h>

#include <cstddef>
#include <vector>

namespace millrace::simulated {

std::size_t size_of(ncclDataType_t);  // 0: not simulated

// to[i] = the reduction of from[0][i], from[1][i], ... in this order. 16-bit types are computed in float and rounded
// once.
void reduce(ncclDataType_t, ncclRedOp_t, const std::vector<const char*>& from, char* to, std::size_t count);

}  // namespace millrace::simulated
