// A rank of the simulated NCCL, for tests, and processes that run a program as ranks.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "simulated_cuda/simulator.hpp"

namespace millrace::test {

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
  ncclResult_t make_window(std::size_t bytes, ncclWindow_t* out, int flags = NCCL_WIN_COLL_SYMMETRIC) {
    return settle(ncclCommWindowRegister(comm, device, bytes, out, flags));
  }
  ncclResult_t end_window(ncclWindow_t window) { return settle(ncclCommWindowDeregister(comm, window)); }
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
inline int on_ranks(int size, const Program& program) {
  struct Shared {
    ncclUniqueId id;
    std::atomic<bool> made;
  };
  void* const shared = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& meeting = *static_cast<Shared*>(shared);
  std::vector<pid_t> ranks;
  for (int r = 0; r < size; ++r) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(40);  // a rank that hangs fails
      simulated::read_settings_again();
      // Rank 0 makes the id, as in millrace: the others are no children of its process.
      if (r == 0) {
        if (ncclGetUniqueId(&meeting.id) != ncclSuccess) std::_Exit(2);
        meeting.made = true;
      }
      while (!meeting.made) std::this_thread::sleep_for(Seconds(1e-4));
      std::_Exit(program(r, meeting.id) ? 0 : 1);
    }
    ranks.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : ranks) {
    int status = 0;
    ::waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  ::munmap(shared, sizeof(Shared));
  return worst;
}

constexpr std::size_t mib = 1 << 20;

}  // namespace millrace::test
