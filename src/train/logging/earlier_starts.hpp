// What run.json keeps of the launches of a run before the present one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace {

// The fields `earlier` and `changed`, from the files that the launch before left in the folder. Call it before run.json
// and config.cfg are replaced; `config` is the new text of the latter. Both are empty for a new run. A launch that had
// no steps left and changed nothing is left out.
nlohmann::json earlier_starts(const std::filesystem::path& dir, std::int64_t resumed_at, const std::string& config);

}  // namespace millrace
