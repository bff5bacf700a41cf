#include "bench/baseline_reads.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/data/read/async_reads.hpp"

namespace millrace {
namespace {

class RandomRows {
 public:
  RandomRows(std::uint64_t round, int thread, std::int64_t rows)
      : state_(rng_key(round * 1000 + std::uint64_t(thread), RngPurpose::shuffle)), rows_(std::uint64_t(rows)) {}
  std::uint64_t next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return ((state_ >> 32) * rows_) >> 32;
  }

 private:
  std::uint64_t state_, rows_;
};

// The range of a sample in the file, extended to multiples of `block`.
struct Window {
  std::uint64_t from;
  std::size_t bytes;
  Window(std::uint64_t row, std::uint64_t bytes_each, std::uint64_t block)
      : from(row * bytes_each / block * block),
        bytes(std::size_t(((row + 1) * bytes_each + block - 1) / block * block - from)) {}
};

class OpenFile {
 public:
  OpenFile(const std::string& path, bool direct_io)
      : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct_io ? O_DIRECT : 0))) {
    if (fd < 0) fail(Exit::data, "cannot open {}", path);
    block = direct_io ? direct_alignment(fd).offset : 1;
  }
  ~OpenFile() { ::close(fd); }
  const int fd;
  std::uint64_t block;
};

// Seconds until `loop` has ended in all threads. It returns false if a read failed, which becomes an Error(data).
double timed(int threads, const std::function<void(int)>& prepare_and_wait, const std::function<bool(int)>& loop,
             std::barrier<>& start, const std::string& path) {
  std::atomic<bool> failed{false};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      prepare_and_wait(t);
      if (!loop(t)) failed = true;
    });
  start.arrive_and_wait();
  const double began = steady_seconds();
  for (auto& t : all) t.join();
  const double seconds = steady_seconds() - began;
  if (failed) fail(Exit::data, "cannot read {}", path);
  return seconds;
}

}  // namespace

double baseline_pread_seconds(Device& device, const std::string& path, const LoaderBenchOptions& o, std::uint64_t round,
                              std::int64_t samples, int threads, bool direct_io) {
  const OpenFile file(path, direct_io);
  const std::size_t place = (std::size_t(o.sample_bytes) + (direct_io ? 2 * 4096 : 0) + (direct_io ? 4095 : 0)) /
                            (direct_io ? 4096 : 1) * (direct_io ? 4096 : 1);
  const auto slots = std::size_t(std::max<std::int64_t>(1, o.micro_batch * o.prefetch / threads));
  std::vector<Buffer> memory;
  for (int t = 0; t < threads; ++t) memory.emplace_back(device, MemoryKind::pinned, slots * place);
  std::barrier<> start(threads + 1);
  return timed(
      threads, [&](int) { start.arrive_and_wait(); },
      [&](int t) {
        RandomRows rows(round, t, o.rows);
        char* const to = memory[std::size_t(t)].as<char>();
        bool complete = true;
        for (std::int64_t i = 0; i < samples / threads; ++i) {
          const Window w(rows.next(), std::uint64_t(o.sample_bytes), file.block);
          const ssize_t n = ::pread(file.fd, to + std::size_t(i) % slots * place, w.bytes, off_t(w.from));
          complete = complete && n > 0 && std::size_t(n) + file.block > w.bytes;  // the last block may end early
        }
        return complete;
      },
      start, path);
}

double baseline_async_seconds(Device& device, const std::string& path, const LoaderBenchOptions& o, std::uint64_t round,
                              std::int64_t samples, int depth) {
  const OpenFile file(path, true);
  const std::size_t place = (std::size_t(o.sample_bytes) + 3 * 4096 - 1) / 4096 * 4096;
  std::vector<Buffer> memory;
  std::vector<std::unique_ptr<AsyncReads>> queues;
  for (int t = 0; t < o.workers; ++t) {
    memory.emplace_back(device, MemoryKind::pinned, std::size_t(depth) * place);
    const std::span<char> part{memory.back().as<char>(), memory.back().bytes()};
    queues.push_back(make_async_reads({&part, 1}));
  }
  std::barrier<> start(o.workers + 1);
  return timed(
      o.workers, [&](int) { start.arrive_and_wait(); },
      [&](int t) {
        RandomRows rows(round, t, o.rows);
        AsyncReads& queue = *queues[std::size_t(t)];
        const std::int64_t mine = samples / o.workers;
        std::int64_t begun = 0, ended = 0;
        bool complete = true;
        const auto begin = [&](std::uint32_t tag) {
          const Window w(rows.next(), std::uint64_t(o.sample_bytes), file.block);
          queue.add({file.fd, w.from, std::uint32_t(w.bytes), memory[std::size_t(t)].as<char>() + tag * place, tag});
          ++begun;
        };
        const auto max_in_flight = std::int64_t(std::min(std::size_t(depth), queue.capacity()));
        while (begun < std::min(max_in_flight, mine)) begin(std::uint32_t(begun));
        for (AsyncDone done[16]; ended < mine;) {
          const std::size_t n = queue.wait(done);
          for (std::size_t d = 0; d < n; ++d, ++ended) {
            complete = complete && done[d].result > 0;
            if (begun < mine) begin(done[d].tag);
          }
        }
        return complete;
      },
      start, path);
}

}  // namespace millrace
