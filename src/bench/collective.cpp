#include "millrace/bench/collective.hpp"

#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>

#include "millrace/base/clock.hpp"
#include "millrace/base/median.hpp"
#include "millrace/comm/mpi_check.hpp"

namespace millrace {
namespace {

template <class F>
double slowest_rank_seconds(World& world, F f) {
  world.barrier();
  const double began = steady_seconds();
  f();
  double seconds = steady_seconds() - began;
  world.all_reduce(std::span<double>(&seconds, 1), World::Reduce::max);
  return seconds;
}

}  // namespace

std::vector<AllReduceTiming> bench_all_reduce(World& world, Collective& collective,
                                              const std::vector<std::size_t>& sizes, int repeats, bool beside_mpi,
                                              Device* device) {
  const std::size_t max_bytes = *std::max_element(sizes.begin(), sizes.end());
  const SharedRegion region = collective.allocate(max_bytes);
  beside_mpi = beside_mpi && world.mpi_comm();
  std::vector<float> plain(beside_mpi ? max_bytes / sizeof(float) : 0, 1.0f);
  std::vector<AllReduceTiming> out;
  for (const std::size_t bytes : sizes) {
    const std::size_t count = bytes / sizeof(float);
    std::vector<double> ours, theirs;
    for (int r = 0; r < repeats + 1; ++r) {
      const double a = slowest_rank_seconds(world, [&] {
        collective.all_reduce_async(region, 0, count, DType::f32, 0);
        collective.finish();
        if (device) device->synchronize();
      });
      double b = 0;
      if (beside_mpi)
        b = slowest_rank_seconds(world, [&] {
          MR_MPI(MPI_Allreduce(MPI_IN_PLACE, plain.data(), int(count), MPI_FLOAT, MPI_SUM,
                               *static_cast<const MPI_Comm*>(world.mpi_comm())));
        });
      if (r == 0) continue;  // the first repeat also touches the memory for the first time
      ours.push_back(a);
      theirs.push_back(b);
    }
    out.push_back({bytes, median(ours), median(theirs)});
  }
  return out;
}

std::string str(const std::vector<AllReduceTiming>& rates) {
  std::string out = fmt::format("{:>14} {:>16} {:>16} {:>8}\n", "bytes", "millrace GB/s", "MPI GB/s", "ratio");
  for (const AllReduceTiming& r : rates) {
    out += fmt::format("{:14} {:16.2f} {:16.2f} {:8.2f}\n", r.bytes, double(r.bytes) / r.seconds * 1e-9,
                       r.mpi_seconds > 0 ? double(r.bytes) / r.mpi_seconds * 1e-9 : 0.0, r.mpi_seconds / r.seconds);
  }
  return out;
}

}  // namespace millrace
