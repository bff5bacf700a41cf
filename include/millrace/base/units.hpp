// Sizes ("256MiB", "4k", "1e6 B" is refused) and durations ("10m", "1h30m", "2.5s", "250ms") as people write them, and
// back.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

std::uint64_t parse_bytes(
    std::string_view);  // k, M, G, T = powers of 1000; Ki, Mi, Gi, Ti = powers of 1024; optional B. Error(config)
double parse_seconds(std::string_view);  // us, ms, s, m, h, d; a bare number is seconds; hh:mm:ss. Error(config)
// Bytes a second. B and b are not the same: "400Gb/s", "100Gbit/s", "25GB/s"; k, M, G, T = powers of 1000.
// Error(config)
double parse_rate(std::string_view);
std::string format_bytes(std::uint64_t);  // "1.50 MiB"
std::string print_bytes(std::uint64_t);   // exact and re-readable: "256MiB", "1000"
std::string format_seconds(double);       // "1:12:03", "12.3 s", "4.1 ms"
std::string format_count(double);         // "25.6 M"
std::string format_rate(double);          // bytes a second: "50 GB/s"

}  // namespace millrace
