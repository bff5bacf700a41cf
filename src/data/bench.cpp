#include "millrace/data/bench.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/data/loader.hpp"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Rows of x, then labels; removed with its owner.
class BenchFile {
 public:
  explicit BenchFile(const LoaderBenchOptions& o)
      : path_((o.folder.empty() ? std::filesystem::temp_directory_path() : o.folder) /
              cat("millrace-bench-", ::getpid(), ".bin")) {
    std::ofstream out(path_, std::ios::binary);
    std::vector<std::uint32_t> block(1 << 18);
    const std::int64_t total = o.rows * (o.sample_bytes + std::int64_t(sizeof(std::int32_t)));
    for (std::int64_t done = 0; done < total && out;) {
      for (std::size_t i = 0; i < block.size(); ++i) block[i] = std::uint32_t(i * 2654435761u) >> 24;
      const std::int64_t n = std::min<std::int64_t>(total - done, std::int64_t(block.size() * sizeof block[0]));
      out.write(reinterpret_cast<const char*>(block.data()), n);
      done += n;
    }
    out.close();
    if (!out) fail(Exit::data, "cannot write ", path_.string(), " (full?). name another folder");
  }
  ~BenchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

double loader_seconds(Device& device, const ShardIndex& index, const LoaderBenchOptions& o, std::uint64_t epoch) {
  const auto source = make_source(*solo_world(), index, Reader::direct);
  const Sampler sampler(o.rows, o.micro_batch, o.micro_batch, 1, true);
  std::int64_t first = 0, step = 0, turn = std::int64_t(epoch) << 20;
  const std::int64_t warm = 4 * o.prefetch;
  Loader loader(device, *source, index, sampler, {o.workers, o.prefetch, o.micro_batch},
                [&]() -> std::optional<MicroBatch> {
                  if (first + o.micro_batch > o.rows) first = 0, ++turn;
                  const MicroBatch item{turn, step++, first, o.micro_batch};
                  first += o.micro_batch;
                  return item;
                });
  for (std::int64_t b = 0; b < warm; ++b) loader.next();
  const auto began = Clock::now();
  for (std::int64_t done = 0; done < o.samples; done += o.micro_batch) loader.next();
  return seconds_since(began);
}

// Each thread fills its part of as much memory as the loader's ring has, over and over. As the loader's, the memory is
// page-aligned (copies to 16-byte alignment are far slower) and made before the clock starts, and so are the threads.
double bare_seconds(Device& device, const std::string& path, const LoaderBenchOptions& o, std::uint64_t epoch) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(Exit::data, "cannot open ", path);
  const std::int64_t slots = std::max<std::int64_t>(1, o.micro_batch * o.prefetch / o.workers);
  std::vector<Buffer> memory;
  for (int w = 0; w < o.workers; ++w)
    memory.emplace_back(device, MemoryKind::pinned, std::size_t(slots * o.sample_bytes));
  std::barrier start(o.workers + 1);
  std::atomic<bool> failed{false};
  const auto loop = [&](int worker) {
    const auto bytes = std::size_t(o.sample_bytes);
    char* const base = memory[std::size_t(worker)].as<char>();
    std::uint64_t state = rng_key(epoch * 1000 + std::uint64_t(worker), Purpose::shuffle);
    start.arrive_and_wait();
    for (std::int64_t i = 0; i < o.samples / o.workers; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const std::uint64_t row = ((state >> 32) * std::uint64_t(o.rows)) >> 32;
      if (::pread(fd, base + i % slots * o.sample_bytes, bytes, off_t(row * bytes)) != ssize_t(bytes)) failed = true;
    }
  };
  std::vector<std::thread> threads;
  for (int w = 0; w < o.workers; ++w) threads.emplace_back(loop, w);
  start.arrive_and_wait();
  const auto began = Clock::now();
  for (auto& t : threads) t.join();
  const double seconds = seconds_since(began);
  ::close(fd);
  if (failed) fail(Exit::data, "cannot read ", path);
  return seconds;
}

}  // namespace

LoaderBench bench_loader(Device& device, const LoaderBenchOptions& o) {
  if (o.workers < 1 || o.repeats < 1 || o.rows < o.micro_batch || o.micro_batch < 1 || o.samples < o.micro_batch)
    fail(Exit::config, "bench loader: workers, repeats and samples are at least 1, rows and samples a micro-batch");
  const BenchFile file(o);
  ShardIndex index;
  index.rows = o.rows, index.sample = {o.sample_bytes}, index.y_dtype = DType::i32;
  Shard shard;
  shard.path = file.path().string(), shard.rows = o.rows;
  shard.y_offset = std::uint64_t(o.rows * o.sample_bytes);
  index.shards = {shard};
  std::vector<double> loader, bare, ratio;
  const double samples = double((o.samples + o.micro_batch - 1) / o.micro_batch * o.micro_batch);
  bare_seconds(device, shard.path, o, 0);  // the first turn finds cold caches
  for (int r = 0; r < o.repeats; ++r) {
    loader.push_back(samples / loader_seconds(device, index, o, std::uint64_t(r)));
    bare.push_back(double(o.samples / o.workers * o.workers) / bare_seconds(device, shard.path, o, std::uint64_t(r)));
    ratio.push_back(loader.back() / bare.back());
  }
  LoaderBench out;
  out.loader_samples_per_second = median(loader), out.bare_samples_per_second = median(bare);
  out.loader_gb_per_second = out.loader_samples_per_second * double(o.sample_bytes) / 1e9;
  out.bare_gb_per_second = out.bare_samples_per_second * double(o.sample_bytes) / 1e9;
  out.ratio = median(ratio);
  return out;
}

std::string LoaderBench::str() const {
  char text[200];
  std::snprintf(text, sizeof text, "loader %.0f samples/s (%.2f GB/s), bare pread %.0f samples/s (%.2f GB/s): %.0f %%",
                loader_samples_per_second, loader_gb_per_second, bare_samples_per_second, bare_gb_per_second,
                100 * ratio);
  return text;
}

}  // namespace millrace
