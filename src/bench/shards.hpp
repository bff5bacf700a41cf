// Generated shards of a bench. Private to the data room.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/comm/world.hpp"

namespace millrace {

// HDF5 shards of samples of so many bytes, in files of 1 GiB at most. Those that are there already are used.
class BenchShards {
 public:
  // Collective. folder: empty: a new one in the system's temporary folder. Error(data): no room, or not writable.
  BenchShards(World&, const std::filesystem::path& folder, const std::string& name, std::int64_t samples,
              std::int64_t sample_bytes, bool keep);
  ~BenchShards() { remove(); }
  BenchShards(const BenchShards&) = delete;
  std::string glob() const { return (folder_ / (stem_ + "-*.h5")).string(); }
  bool made() const { return made_; }  // not found

 private:
  void make(std::int64_t samples, std::int64_t sample_bytes);
  void remove() noexcept;  // what it made, unless it is to be kept

  std::filesystem::path folder_;
  std::string stem_;
  bool removes_folder_ = false, keep_, mine_ = false, made_ = false;
};

}  // namespace millrace
