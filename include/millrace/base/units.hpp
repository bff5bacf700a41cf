// Parses and formats sizes ("256MiB", "4k"), durations ("10m", "1h30m", "2.5s", "250ms") and rates ("400Gb/s"). The
// parsers throw an Error(config) for invalid text. Numbers with an exponent ("1e6 B") are invalid.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// k, M, G and T are powers of 1000; Ki, Mi, Gi and Ti are powers of 1024. A "B" may follow.
std::uint64_t parse_bytes(std::string_view);
// Units: us, ms, s, m, h, d. A number without a unit is in seconds. Also accepts hh:mm:ss and mm:ss.
double parse_seconds(std::string_view);
// Returns bytes per second. "b" means bits and "B" bytes: "400Gb/s", "100Gbit/s", "25GB/s". k, M, G and T are powers of
// 1000.
double parse_rate(std::string_view);
std::string format_bytes(std::uint64_t);  // rounded: "1.50 MiB"
std::string print_bytes(std::uint64_t);   // exact, for parse_bytes(): "256MiB", "1000"
std::string format_seconds(double);       // "1:12:03", "12.3 s", "4.1 ms"
std::string format_count(double);         // "25.6 M"
std::string format_rate(double);          // from bytes per second: "50 GB/s"

}  // namespace millrace
