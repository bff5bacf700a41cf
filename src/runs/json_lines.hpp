// Files with one flat JSON object per line, such as metrics.jsonl. They are read as a stream, so they may be of any
// length.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace millrace {

// Calls on(line, number) for each line; numbers count from 1. A last line without a newline is left out: a killed
// writer may leave one. Error(data) when the file cannot be read.
void read_lines(const std::filesystem::path&,
                const std::function<void(std::string_view line, std::int64_t number)>& on);

// The step of the last complete line. 0: the file is missing or has no such line.
std::int64_t last_step(const std::filesystem::path&);

}  // namespace millrace
