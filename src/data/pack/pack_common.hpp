// Shared by packing of values and of encoded images. Private to the data room.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "millrace/data/pack/pack.hpp"

namespace millrace {

struct PackSplit {  // a range of packed positions that becomes one set of shards
  std::string prefix;
  std::int64_t begin = 0, rows = 0;
};

// Collective. Checks the options and creates the folder. Error(data) for wrong options, no rows, or existing shards.
void prepare_folder(World&, std::int64_t rows, const PackOptions&);
// The number of rows for validation. Error(config) if no rows remain for training.
std::int64_t valid_rows(std::int64_t rows, const PackOptions&);

// Writes shards under temporary names and renames them when all are complete. So the old shards may be the source of
// the new ones. If packing fails, the new shards are removed and the old ones stay.
class ShardTransaction {
 public:
  ShardTransaction(World& world, const PackOptions& options) : world_(world), options_(options) {}
  ShardTransaction(const ShardTransaction&) = delete;
  ~ShardTransaction();
  // Collective: write(temporary path) must fail on all ranks or on none. Returns the final name of the shard.
  std::string write(const std::string& prefix, std::int64_t shard,
                    const std::function<void(const std::filesystem::path&)>& write);
  void commit();  // collective; removes old shards that are not overwritten

 private:
  World& world_;
  const PackOptions& options_;
  std::vector<std::filesystem::path> written_;  // final names
};

}  // namespace millrace
