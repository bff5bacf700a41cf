// Windows of the simulated NCCL: what they are for, and each of their rules, broken by a small program.
#include <gtest/gtest.h>

#include "simulated_cuda/nccl/rank.hpp"

namespace millrace::test {
namespace windows_test {

constexpr int violated = 70;

void expect_violation(const Program& program) { EXPECT_EQ(on_ranks(2, program), violated); }

TEST(SimulatedNcclWindow, CollectivesInPlaceUseIt) {
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       Rank r(rank, 2, id, mib);
                       ncclWindow_t window = nullptr;
                       if (r.make_window(mib, &window) != ncclSuccess || !window) return false;
                       float* const at = reinterpret_cast<float*>(r.device) + 16;
                       for (int i = 0; i < 24; ++i) r.values<float>()[i] = float(rank + 1);
                       r.upload(mib);
                       bool good = r.settle(ncclAllReduce(at, at, 4, ncclFloat32, ncclSum, r.comm, r.stream)) == 0;
                       // The part of a rank has another offset on each rank.
                       good = good && r.settle(ncclReduceScatter(at + 4, at + 4 + rank, 1, ncclFloat32, ncclSum, r.comm,
                                                                 r.stream)) == 0;
                       good = good &&
                              r.settle(ncclAllGather(at + 4 + rank, at + 4, 1, ncclFloat32, r.comm, r.stream)) == 0;
                       good = good && r.settle(ncclBroadcast(at + 6, at + 6, 1, ncclFloat32, 1, r.comm, r.stream)) == 0;
                       r.download(mib);
                       for (int i = 0; i < 6; ++i) good = good && r.values<float>()[16 + i] == 3;
                       return good && r.values<float>()[22] == 2 && r.end_window(window) == ncclSuccess && r.end();
                     }),
            0);
}
TEST(SimulatedNcclWindow, RegistrationWaitsForAllRanks) {
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       Rank r(rank, 2, id, mib);
                       ncclWindow_t window = nullptr;
                       if (rank == 1) return r.sum(1) == ncclSuccess;
                       const auto status = ncclCommWindowRegister(r.comm, r.device, mib, &window, 0);
                       return r.settle(status, 0.3) == ncclInProgress && ncclCommAbort(r.comm) == ncclSuccess;
                     }),
            0);
}
TEST(SimulatedNcclWindow, IsNullWhereItIsNotSupported) {
  setenv("MILLRACE_SIMULATED_FAULT", "nccl-no-windows", 1);
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       Rank r(rank, 2, id, mib);
                       ncclWindow_t window = reinterpret_cast<ncclWindow_t>(1);
                       return r.make_window(mib, &window) == ncclSuccess && !window && r.end_window(window) == 0;
                     }),
            0);
  unsetenv("MILLRACE_SIMULATED_FAULT");
}
TEST(SimulatedNcclWindow, RefusesDifferentSizes) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    return r.make_window(mib / std::size_t(rank + 1), &window) == ncclSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesDifferentFlags) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    return r.make_window(mib, &window, rank) == ncclSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesOtherMemory) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    void* p = nullptr;
    ncclWindow_t window = nullptr;
    cudaMalloc(&p, mib);
    return r.settle(ncclCommWindowRegister(r.comm, p, mib, &window, NCCL_WIN_COLL_SYMMETRIC)) == ncclSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesMemoryThatIsNotAligned) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    return r.settle(ncclCommWindowRegister(r.comm, r.device + 256, 4096, &window, 0)) == ncclSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesMemoryOfAnotherWindow) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t first = nullptr, second = nullptr;
    return r.make_window(mib, &first) == ncclSuccess && r.make_window(4096, &second) == ncclSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesDifferentOffsets) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    if (r.make_window(mib, &window) != ncclSuccess) return false;
    char* const at = r.device + 256 * rank;
    r.settle(ncclAllReduce(at, at, 1, ncclFloat32, ncclSum, r.comm, r.stream));
    return cudaStreamSynchronize(r.stream) == cudaSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesPlainMemoryOnAnotherRank) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    void* other = nullptr;
    ncclMemAlloc(&other, mib);
    if (r.make_window(mib, &window) != ncclSuccess) return false;
    void* const at = rank == 0 ? r.device : other;
    r.settle(ncclAllReduce(at, at, 1, ncclFloat32, ncclSum, r.comm, r.stream));
    return cudaStreamSynchronize(r.stream) == cudaSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesToEndUnderAnOperation) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    if (r.make_window(mib, &window) != ncclSuccess) return false;
    if (rank == 1) std::this_thread::sleep_for(Seconds(0.5));  // the operation of rank 0 waits for it
    r.sum(1);
    return r.end_window(window) == ncclSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesAReplayAfterItsEnd) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    if (r.make_window(mib, &window) != ncclSuccess) return false;
    cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal);
    r.sum(1);
    cudaStreamEndCapture(r.stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    if (r.end_window(window) != ncclSuccess) return false;
    cudaGraphLaunch(exec, r.stream);
    return cudaStreamSynchronize(r.stream) == cudaSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesToFreeItsMemory) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    return r.make_window(mib, &window) == ncclSuccess && ncclMemFree(r.device) == ncclSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesTheEndOfTheCommunicatorBefore) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    return r.make_window(mib, &window) == ncclSuccess && r.end();
  });
}
TEST(SimulatedNcclWindow, RefusesToEndTwice) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    return r.make_window(mib, &window) == ncclSuccess && r.end_window(window) == ncclSuccess &&
           r.end_window(window) == ncclSuccess;
  });
}
TEST(SimulatedNcclWindow, RefusesRegistrationInACapture) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    ncclWindow_t window = nullptr;
    cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal);
    return r.make_window(mib, &window) == ncclSuccess;
  });
}

TEST(SimulatedNcclConfig, RefusesNumbersOutOfRange) {
  const auto started = [](int max_ctas, int policy) {
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = max_ctas;
    config.CTAPolicy = policy;
    ncclGetUniqueId(&id);
    return ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  };
  cudaSetDevice(0);
  EXPECT_EQ(started(33, 0), ncclInvalidArgument);
  EXPECT_EQ(started(0, 0), ncclInvalidArgument);
  EXPECT_EQ(started(8, 4), ncclInvalidArgument);
  EXPECT_EQ(started(8, NCCL_CTA_POLICY_EFFICIENCY), ncclInProgress);
}

}  // namespace windows_test
}  // namespace millrace::test
