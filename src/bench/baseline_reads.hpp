// The baseline loops that the loader is compared with. Internal to bench/.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/bench/loader.hpp"

namespace millrace {

// Seconds that `threads` threads need to read random samples, split evenly among them. Like the loader's, their memory
// is page-aligned (copies to 16-byte alignment are far slower). Memory and threads are created before the clock starts.
// round: seeds the random order.
double baseline_pread_seconds(Device&, const std::string& path, const LoaderBenchOptions&, std::uint64_t round,
                              std::int64_t samples, int threads, bool direct_io);
// The same by O_DIRECT, with `depth` reads in flight of each of o.workers threads, by io_uring where it can be used.
double baseline_async_seconds(Device&, const std::string& path, const LoaderBenchOptions&, std::uint64_t round,
                              std::int64_t samples, int depth);

}  // namespace millrace
