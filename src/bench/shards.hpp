// Generated shards of a benchmark. Internal to bench/.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/comm/world.hpp"

namespace millrace {

// HDF5 shards with samples of the given size, in files of at most file_bytes. Shards that are there already are used.
class BenchShards {
 public:
  // Collective. folder: empty for a new one in the system's temporary folder. Error(data): no space, or not writable.
  BenchShards(World&, const std::filesystem::path& folder, const std::string& name, std::int64_t samples,
              std::int64_t sample_bytes, bool keep, std::int64_t file_bytes = std::int64_t(1) << 30);
  ~BenchShards() { remove(); }
  BenchShards(const BenchShards&) = delete;
  std::string glob() const { return (folder_ / (stem_ + "-*.h5")).string(); }
  bool made() const { return made_; }  // by this object; else they were there already

 private:
  void make(std::int64_t samples, std::int64_t sample_bytes, std::int64_t file_bytes);
  void remove() noexcept;  // removes the shards that it made, unless `keep` was set

  std::filesystem::path folder_;
  std::string stem_;
  bool removes_folder_ = false, keep_, mine_ = false, made_ = false;
};

}  // namespace millrace
