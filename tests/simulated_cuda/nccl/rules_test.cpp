// Each rule of the simulated NCCL, broken by a small program.
#include <gtest/gtest.h>

#include "simulated_cuda/nccl/rank.hpp"

namespace millrace::test {
namespace rules_test {

constexpr int violated = 70;

void expect_violation(const Program& program) { EXPECT_EQ(on_ranks(2, program), violated); }

TEST(SimulatedNccl, RefusesDifferentOperations) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    r.sum(rank == 0 ? 4 : 5);
    return cudaStreamSynchronize(r.stream) == cudaSuccess;
  });
}
TEST(SimulatedNccl, RefusesACaptureOnOneRankOnly) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    if (rank == 0) cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal);
    r.sum(1);
    if (rank == 0) {
      cudaStreamEndCapture(r.stream, &graph);
      cudaGraphInstantiate(&exec, graph, 0);
      cudaGraphLaunch(exec, r.stream);
    }
    return cudaStreamSynchronize(r.stream) == cudaSuccess;
  });
}
TEST(SimulatedNccl, RefusesACallWhileAnotherIsInProgress) {
  setenv("MILLRACE_SIMULATED_DELAY", "500000", 1);
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    for (int i = 0; i < 20; ++i) ncclAllReduce(r.device, r.device, 1, ncclFloat32, ncclSum, r.comm, r.stream);
    return true;
  });
  unsetenv("MILLRACE_SIMULATED_DELAY");
}
TEST(SimulatedNccl, RefusesDestroyBeforeFinalize) {
  expect_violation([](int rank, const ncclUniqueId& id) { return ncclCommDestroy(Rank(rank, 2, id, mib).comm) == 0; });
}
TEST(SimulatedNccl, RefusesHostMemory) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    return ncclAllReduce(r.host, r.host, 1, ncclFloat32, ncclSum, r.comm, r.stream) == ncclInProgress;
  });
}
TEST(SimulatedNccl, RefusesToFreeRegisteredMemory) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    void* handle = nullptr;
    if (r.settle(ncclCommRegister(r.comm, r.device, mib, &handle)) != ncclSuccess || !handle) return false;
    return ncclMemFree(r.device) == ncclSuccess;
  });
}

TEST(SimulatedNccl, AbortEndsAnOperationWhosePeerWasKilled) {
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       Rank r(rank, 2, id, mib);
                       if (rank == 1) return true;  // gone without its operation
                       const bool good = r.sum(1) == ncclSuccess;
                       std::this_thread::sleep_for(Seconds(0.3));
                       const bool waits = cudaStreamQuery(r.stream) == cudaErrorNotReady;
                       return good && waits && ncclCommAbort(r.comm) == ncclSuccess &&
                              cudaStreamSynchronize(r.stream) == cudaSuccess && r.sum(1) == ncclInvalidArgument;
                     }),
            0);
}

TEST(SimulatedNccl, RefusesASecondStream) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    cudaStream_t other = nullptr;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    return r.sum(1) == ncclSuccess && cudaStreamSynchronize(r.stream) == cudaSuccess && r.sum(1, other) == ncclSuccess;
  });
}
TEST(SimulatedNccl, RefusesToRegisterOtherMemory) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    void *p = nullptr, *handle = nullptr;
    cudaMalloc(&p, mib);
    return r.settle(ncclCommRegister(r.comm, p, mib, &handle)) == ncclSuccess;
  });
}
TEST(SimulatedNccl, RefusesDestroyWithRegisteredMemory) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    void* handle = nullptr;
    return r.settle(ncclCommRegister(r.comm, r.device, mib, &handle)) == ncclSuccess && r.end();
  });
}
TEST(SimulatedNccl, RefusesGraphsOfDifferentLength) {
  expect_violation([](int rank, const ncclUniqueId& id) {
    Rank r(rank, 2, id, mib);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i <= rank; ++i) r.sum(1);
    cudaStreamEndCapture(r.stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    for (int i = 0; i < 2; ++i) cudaGraphLaunch(exec, r.stream);
    return cudaStreamSynchronize(r.stream) == cudaSuccess;
  });
}
TEST(SimulatedNccl, AllowsACaptureOfOneRankThatIsNotLaunched) {
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       Rank r(rank, 2, id, mib);
                       cudaGraph_t graph = nullptr;
                       cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal);
                       if (rank == 1) r.sum(1);
                       cudaStreamEndCapture(r.stream, &graph);
                       return r.sum(1) == ncclSuccess && r.end();
                     }),
            0);
}

}  // namespace rules_test
}  // namespace millrace::test
