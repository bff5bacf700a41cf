// The bare loops that bench_loader compares with. Private to the data room.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/bench/loader.hpp"

namespace millrace {

// Seconds that `threads` threads take for random samples, each its part. As the loader's, the memory is page-aligned
// (copies to 16-byte alignment are far slower) and made before the clock starts, and so are the threads.
double baseline_pread_seconds(Device&, const std::string& path, const LoaderBenchOptions&, std::uint64_t turn,
                              std::int64_t samples, int threads, bool direct_io);
// The same by O_DIRECT with `depth` reads under way of each of o.workers threads, by io_uring where there is one.
double baseline_async_seconds(Device&, const std::string& path, const LoaderBenchOptions&, std::uint64_t turn,
                              std::int64_t samples, int depth);

}  // namespace millrace
