// Files of one flat JSON object a line, as metrics.jsonl: read as a stream, whatever their length.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace millrace {

// Calls on(line, number) for each line, from 1. One that no newline ends, as a killed writer leaves, is left out.
// Error(data).
void read_lines(const std::filesystem::path&,
                const std::function<void(std::string_view line, std::int64_t number)>& on);

// The step of the last whole line; 0: there is none.
std::int64_t last_step(const std::filesystem::path&);

}  // namespace millrace
