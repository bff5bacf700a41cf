// Words and numbers that several rules and reports share. Internal to advisor/.
#pragma once
#include <cstdint>
#include <string>

namespace millrace {

inline double ms(double seconds) { return seconds * 1e3; }
inline const char* plural(double count) { return count == 1 ? "" : "s"; }

// A size as the value of a key, in MiB or KiB: "1024MiB".
inline std::string as_key_value(std::uint64_t bytes) {
  return bytes >> 20 << 20 == bytes ? std::to_string(bytes >> 20) + "MiB" : std::to_string(bytes >> 10) + "KiB";
}

inline constexpr const char* changes_sample_order = "the order of samples changes";
inline constexpr const char* rounds_more_coarsely = "values are rounded more coarsely: watch the loss";
inline constexpr const char* makes_larger_steps = "fewer, larger steps: adjust the learning rate";
inline constexpr const char* changes_batch_norm = "batch norm computes its statistics over other batches";

}  // namespace millrace
