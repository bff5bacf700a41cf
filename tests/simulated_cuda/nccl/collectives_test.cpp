// The simulated NCCL: results, aborts and faults. Ranks are processes, as in millrace, or threads.
#include <gtest/gtest.h>

#include "millrace/base/types.hpp"
#include "simulated_cuda/nccl/rank.hpp"

namespace millrace::test {
namespace collectives_test {

TEST(SimulatedNccl, AllReduceOfManyPiecesSumsInPlace) {
  EXPECT_EQ(on_ranks(3,
                     [](int rank, const ncclUniqueId& id) {
                       constexpr std::size_t count = 700'001;  // several pieces, and a part of one
                       Rank r(rank, 3, id, 4 * mib);
                       for (std::size_t i = 0; i < count; ++i)
                         r.values<float>()[i] = float(i % 1000 + std::size_t(rank));
                       r.upload(count * 4);
                       bool good = r.started == ncclSuccess && r.sum(count) == ncclSuccess;
                       r.download(count * 4);
                       for (std::size_t i = 0; i < count; ++i)
                         good = good && r.values<float>()[i] == float(3 * (i % 1000) + 3);
                       return good && r.end();
                     }),
            0);
}

TEST(SimulatedNccl, SixteenBitSumsAreRoundedOnce) {
  EXPECT_EQ(on_ranks(3,
                     [](int rank, const ncclUniqueId& id) {
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
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       constexpr std::size_t part = 200'000;
                       Rank r(rank, 2, id, 2 * mib);
                       for (std::size_t i = 0; i < 2 * part; ++i) r.values<float>()[i] = float(i) * float(rank + 1);
                       r.upload(2 * part * 4);
                       auto* const all = reinterpret_cast<float*>(r.device);
                       float* const mine = all + std::size_t(rank) * part;
                       bool good =
                           r.settle(ncclReduceScatter(all, mine, part, ncclFloat32, ncclSum, r.comm, r.stream)) == 0 &&
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
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
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

TEST(SimulatedNccl, AbortEndsAnOperationInItsMiddle) {
  EXPECT_EQ(
      on_ranks(2,
               [](int rank, const ncclUniqueId& id) {
                 Rank r(rank, 2, id, 256 * mib);
                 bool good = r.sum(64 * mib) == ncclSuccess;
                 std::this_thread::sleep_for(Seconds(0.02));
                 if (rank == 1) return good;  // gone when some pieces are summed
                 std::this_thread::sleep_for(Seconds(0.2));
                 good = good && cudaStreamQuery(r.stream) == cudaErrorNotReady && ncclCommAbort(r.comm) == ncclSuccess;
                 return good && cudaStreamSynchronize(r.stream) == cudaSuccess && ncclMemFree(r.device) == ncclSuccess;
               }),
      0);
}

TEST(SimulatedNccl, RanksMayBeThreads) {
  EXPECT_EQ(on_ranks(1,
                     [](int, const ncclUniqueId& id) {
                       std::vector<std::thread> threads;
                       std::atomic<int> good{0};
                       for (int rank = 0; rank < 3; ++rank)
                         threads.emplace_back([&, rank] {
                           Rank r(rank, 3, id, mib);
                           r.values<float>()[0] = float(rank);
                           r.upload(4);
                           const bool summed = r.sum(1) == ncclSuccess;
                           r.download(4);
                           good += summed && r.values<float>()[0] == 3 &&
                                   r.settle(ncclCommFinalize(r.comm)) == ncclSuccess &&
                                   ncclCommDestroy(r.comm) == ncclSuccess;
                         });
                       for (auto& thread : threads) thread.join();
                       return good == 3;
                     }),
            0);
}

TEST(SimulatedNccl, ALateRankDelaysTheOthers) {
  setenv("MILLRACE_SIMULATED_FAULT", "nccl-late:1:1:0.4", 1);
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       Rank r(rank, 2, id, mib);
                       const auto begin = std::chrono::steady_clock::now();
                       const bool good = r.sum(1) == ncclSuccess && cudaStreamSynchronize(r.stream) == cudaSuccess;
                       return good && std::chrono::steady_clock::now() - begin > Seconds(0.3) && r.end();
                     }),
            0);
  unsetenv("MILLRACE_SIMULATED_FAULT");
}

TEST(SimulatedNccl, AFailedStartLeavesTheOthersInProgress) {
  setenv("MILLRACE_SIMULATED_FAULT", "nccl-init:1", 1);
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       Rank r(rank, 2, id, mib);
                       return r.started == (rank == 1 ? ncclUnhandledCudaError : ncclInProgress) &&
                              ncclCommAbort(r.comm) == ncclSuccess;
                     }),
            0);
  setenv("MILLRACE_SIMULATED_FAULT", "nccl-error:1:2", 1);
  EXPECT_EQ(on_ranks(2,
                     [](int rank, const ncclUniqueId& id) {
                       Rank r(rank, 2, id, mib);
                       r.sum(1);
                       r.sum(1);
                       std::this_thread::sleep_for(Seconds(0.3));
                       const auto status = r.settle(ncclInProgress, 0.1);
                       return status == (rank == 1 ? ncclRemoteError : ncclSuccess) &&
                              ncclCommAbort(r.comm) == ncclSuccess && cudaStreamSynchronize(r.stream) == cudaSuccess;
                     }),
            0);
  unsetenv("MILLRACE_SIMULATED_FAULT");
}

}  // namespace collectives_test
}  // namespace millrace::test
