// Internal to the simulated cuBLASLt: what it proposes. Tests change it; each thread has its own, as ranks may be
// threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::simulated {

struct CublasOffers {
  std::vector<std::uint64_t> workspaces = {4096, 0, 1 << 20};  // bytes that each algorithm needs, the best one first
  bool confirms = true;                                        // whether the check accepts algorithms
  std::size_t more_workspace = 0;                              // that the check demands
};
CublasOffers& cublas_offers();

}  // namespace millrace::simulated
