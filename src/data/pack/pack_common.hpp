// What packing of values and of encoded images share. Private to the data room.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "millrace/data/pack/pack.hpp"

namespace millrace {

struct PackSplit {  // a run of packed positions that becomes one set of shards
  std::string prefix;
  std::int64_t begin = 0, rows = 0;
};

// Collective. Error(data): wrong options, no rows, shards that are there. Makes the folder.
void prepare_folder(World&, std::int64_t rows, const PackOptions&);
// How many rows are for validation; Error(config) where that is all.
std::int64_t valid_rows(std::int64_t rows, const PackOptions&);

// Shards get their names when all of them are whole, so that what is packed anew may be read from the old ones, and
// nothing is lost when it fails: then none of them stays, and the old ones are there.
class ShardTransaction {
 public:
  ShardTransaction(World& world, const PackOptions& options) : world_(world), options_(options) {}
  ShardTransaction(const ShardTransaction&) = delete;
  ~ShardTransaction();
  // Collective: write(aside) fails on all ranks or none. Returns the name that the shard will have.
  std::string write(const std::string& prefix, std::int64_t shard,
                    const std::function<void(const std::filesystem::path&)>& write);
  void commit();  // collective; old ones that are not written over go

 private:
  World& world_;
  const PackOptions& options_;
  std::vector<std::filesystem::path> written_;  // as named in the end
};

}  // namespace millrace
