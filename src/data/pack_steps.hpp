// What packing of values and of encoded images share. Private to the data room.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "millrace/data/pack.hpp"

namespace millrace {

struct Part {  // a run of packed positions that becomes one set of shards
  std::string prefix;
  std::int64_t begin = 0, rows = 0;
};

// Collective. Error(data): wrong options, no rows, shards that are there. Makes the folder, and room in it.
void prepare_folder(World&, std::int64_t rows, const PackOptions&);
// How many rows are for validation; Error(config) where that is all.
std::int64_t valid_rows(std::int64_t rows, const PackOptions&);
// Collective: write(aside) fails on all ranks or none, then nothing stays behind; a shard that is whole gets its name.
std::string write_whole(World&, const PackOptions&, const std::string& prefix, std::int64_t shard,
                        const std::function<void(const std::filesystem::path&)>& write);

}  // namespace millrace
