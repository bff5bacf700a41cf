// The simulated NCCL: results, and each rule broken by a small program. Ranks are processes.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "millrace/base/types.hpp"

namespace millrace::test {
namespace {

using Seconds = std::chrono::duration<double>;

// One rank: a communicator, a stream, and memory on the GPU and on the host.
struct Rank {
  Rank(int rank, int size, const ncclUniqueId& id, std::size_t bytes, int blocking = 0) : rank(rank), size(size) {
    void* p = nullptr;
    cudaSetDevice(rank);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    ncclMemAlloc(&p, bytes);
    device = static_cast<char*>(p);
    cudaHostAlloc(&p, bytes, 0);
    host = static_cast<char*>(p);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    started = settle(ncclCommInitRankConfig(&comm, size, id, rank, &config), 3);
  }
  ncclResult_t settle(ncclResult_t status, double seconds = 30) {
    const auto end = std::chrono::steady_clock::now() + Seconds(seconds);
    while (status == ncclInProgress && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(Seconds(1e-4));
      ncclResult_t now = ncclSuccess;
      const auto asked = ncclCommGetAsyncError(comm, &now);
      status = asked == ncclSuccess ? now : asked;
    }
    return status;
  }
  ncclResult_t sum(std::size_t count, cudaStream_t in, ncclDataType_t type = ncclFloat32) {
    return settle(ncclAllReduce(device, device, count, type, ncclSum, comm, in));
  }
  ncclResult_t sum(std::size_t count) { return sum(count, stream); }
  void upload(std::size_t bytes) { cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream); }
  void download(std::size_t bytes) {
    cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
  }
  bool end() {
    return settle(ncclCommFinalize(comm)) == ncclSuccess && ncclCommDestroy(comm) == ncclSuccess &&
           ncclMemFree(device) == ncclSuccess;
  }
  template <class T>
  T* values() {
    return reinterpret_cast<T*>(host);
  }
  int rank, size;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  char *device = nullptr, *host = nullptr;
  ncclResult_t started = ncclSuccess;
};

using Program = std::function<bool(int rank, const ncclUniqueId&)>;

// Runs a program on ranks that are processes. 0: it was true on all of them; otherwise the exit code of one.
int on_ranks(int size, const Program& program) {
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) return -1;
  std::vector<pid_t> ranks;
  for (int r = 0; r < size; ++r) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(40);  // a rank that hangs fails
      std::_Exit(program(r, id) ? 0 : 1);
    }
    ranks.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : ranks) {
    int status = 0;
    ::waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return worst;
}

constexpr int violated = 70;
constexpr std::size_t mib = 1 << 20;

TEST(SimulatedNccl, AllReduceOfManyPiecesSumsInPlace) {
  EXPECT_EQ(on_ranks(3, [](int rank, const ncclUniqueId& id) {
              constexpr std::size_t count = 700'001;  // several pieces, and a part of one
              Rank r(rank, 3, id, 4 * mib);
              for (std::size_t i = 0; i < count; ++i) r.values<float>()[i] = float(i % 1000 + std::size_t(rank));
              r.upload(count * 4);
              bool good = r.started == ncclSuccess && r.sum(count) == ncclSuccess;
              r.download(count * 4);
              for (std::size_t i = 0; i < count; ++i) good = good && r.values<float>()[i] == float(3 * (i % 1000) + 3);
              return good && r.end();
            }),
            0);
}

TEST(SimulatedNccl, SixteenBitSumsAreRoundedOnce) {
  EXPECT_EQ(on_ranks(3, [](int rank, const ncclUniqueId& id) {
              Rank r(rank, 3, id, mib, 1);
              r.values<bf16>()[0] = bf16(rank == 0 ? 256.f : 1.f);  // 256 + 1 alone would be rounded to 256
              r.upload(2);
              const bool good = r.sum(1, r.stream, ncclBfloat16) == ncclSuccess;
              r.download(2);
              return good && float(r.values<bf16>()[0]) == 258.f && r.end();
            }),
            0);
}

TEST(SimulatedNccl, ReduceScatterGatherAndBroadcastWorkInPlace) {
  EXPECT_EQ(on_ranks(2, [](int rank, const ncclUniqueId& id) {
              constexpr std::size_t part = 200'000;
              Rank r(rank, 2, id, 2 * mib);
              for (std::size_t i = 0; i < 2 * part; ++i) r.values<float>()[i] = float(i) * float(rank + 1);
              r.upload(2 * part * 4);
              auto* const all = reinterpret_cast<float*>(r.device);
              float* const mine = all + std::size_t(rank) * part;
              bool good = r.settle(ncclReduceScatter(all, mine, part, ncclFloat32, ncclSum, r.comm, r.stream)) == 0 &&
                          r.settle(ncclAllGather(mine, all, part, ncclFloat32, r.comm, r.stream)) == 0;
              r.download(2 * part * 4);
              for (std::size_t i = 0; i < 2 * part; ++i) good = good && r.values<float>()[i] == 3 * float(i);
              r.values<float>()[0] = float(rank);
              r.upload(4);
              good = good && r.settle(ncclBroadcast(all, all, 1, ncclFloat32, 1, r.comm, r.stream)) == 0;
              r.download(4);
              return good && r.values<float>()[0] == 1 && r.end();
            }),
            0);
}

TEST(SimulatedNccl, GraphsReplayCollectives) {
  EXPECT_EQ(on_ranks(2, [](int rank, const ncclUniqueId& id) {
              Rank r(rank, 2, id, mib);
              r.values<float>()[0] = 1;
              r.upload(4);
              cudaGraph_t graph = nullptr;
              cudaGraphExec_t exec = nullptr;
              cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal);
              const bool good = r.sum(1) == ncclSuccess;
              cudaStreamEndCapture(r.stream, &graph);
              cudaGraphInstantiate(&exec, graph, 0);
              for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, r.stream);
              r.download(4);
              return good && r.values<float>()[0] == 8 && r.end();
            }),
            0);
}

// Each of these programs breaks one rule.
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
  EXPECT_EQ(on_ranks(2, [](int rank, const ncclUniqueId& id) {
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

TEST(SimulatedNccl, AFailedStartLeavesTheOthersInProgress) {
  setenv("MILLRACE_SIMULATED_FAULT", "nccl-init:1", 1);
  EXPECT_EQ(on_ranks(2, [](int rank, const ncclUniqueId& id) {
              Rank r(rank, 2, id, mib);
              return r.started == (rank == 1 ? ncclUnhandledCudaError : ncclInProgress) &&
                     ncclCommAbort(r.comm) == ncclSuccess;
            }),
            0);
  setenv("MILLRACE_SIMULATED_FAULT", "nccl-error:1:2", 1);
  EXPECT_EQ(on_ranks(2, [](int rank, const ncclUniqueId& id) {
              Rank r(rank, 2, id, mib);
              r.sum(1);
              r.sum(1);
              std::this_thread::sleep_for(Seconds(0.3));
              const auto status = r.settle(ncclInProgress, 0.1);
              return status == (rank == 1 ? ncclRemoteError : ncclSuccess) && ncclCommAbort(r.comm) == ncclSuccess &&
                     cudaStreamSynchronize(r.stream) == cudaSuccess;
            }),
            0);
  unsetenv("MILLRACE_SIMULATED_FAULT");
}

}  // namespace
}  // namespace millrace::test
