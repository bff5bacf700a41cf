// Reading through the HDF5 library: MPI-IO (independent transfers) on request, the serial driver for chunked files. One
// worker: the library has one global lock.
#include <algorithm>
#include <map>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/io/hdf5.hpp"
#include "sources.hpp"
#include "synthetic.hpp"

namespace millrace {
namespace {

class Hdf5Source : public Source {
 public:
  Hdf5Source(World& world, const ShardIndex& index, bool through_mpi)
      : index_(index),
        through_mpi_(through_mpi && world.mpi_comm()),
        x_bytes_(index.sample_bytes()),
        y_values_(std::max<std::int64_t>(1, index.target.count())) {
    index_.x_big_endian = index_.y_big_endian = false;  // the library converts
    for (const Shard& s : index.shards)
      files_.push_back(through_mpi_ ? io::File::open_parallel(s.path, world) : io::File::open(s.path));
  }

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    y_stored_.resize(std::max(y_stored_.size(), ids.size() * std::size_t(y_values_) * size_of(index_.y_dtype)));
    for (std::size_t i = 0; i < ids.size();) {
      const auto after = std::upper_bound(index_.shards.begin(), index_.shards.end(), ids[i],
                                          [](std::int64_t id, const Shard& s) { return id < s.first; });
      const std::size_t s = std::size_t(after - index_.shards.begin()) - 1;
      const std::int64_t row = ids[i] - index_.shards[s].first;
      std::size_t run = 1;
      while (i + run < ids.size() && ids[i + run] == ids[i] + std::int64_t(run) &&
             row + std::int64_t(run) < index_.shards[s].rows)
        ++run;
      files_[s].read_rows(index_.x_name, row, std::int64_t(run), index_.x_dtype, static_cast<char*>(x) + i * x_bytes_);
      files_[s].read_rows(index_.y_name, row, std::int64_t(run), index_.y_dtype,
                          y_stored_.data() + i * std::size_t(y_values_) * size_of(index_.y_dtype));
      i += run;
    }
    finish_rows(index_, ids.size(), x, y_stored_.data(), y);
  }

  std::string describe() const override {
    return cat(through_mpi_ ? "mpio: independent H5Dread through MPI-IO" : "hdf5: H5Dread (chunked files)", ", ",
               files_.size(), " files");
  }
  int max_workers() const override { return 1; }

 private:
  ShardIndex index_;
  bool through_mpi_;
  std::size_t x_bytes_;
  std::int64_t y_values_;
  std::vector<io::File> files_;
  std::vector<char> y_stored_;
};

}  // namespace

std::unique_ptr<Source> make_hdf5_source(World& world, const ShardIndex& index, bool through_mpi) {
  return std::make_unique<Hdf5Source>(world, index, through_mpi);
}

std::unique_ptr<Source> make_source(World& world, const ShardIndex& index, Reader reader) {
  if (index.synthetic) return make_synthetic_source(index);
  const bool contiguous =
      std::all_of(index.shards.begin(), index.shards.end(), [](const Shard& s) { return s.contiguous; });
  if (reader == Reader::mpio) return make_hdf5_source(world, index, true);
  if (reader == Reader::direct && !contiguous)
    fail(Exit::config,
         "data.reader = direct needs contiguous data sets, these are chunked. use auto or mpio, or `millrace pack` "
         "them");
  return contiguous ? make_direct_source(index) : make_hdf5_source(world, index, false);
}

}  // namespace millrace
