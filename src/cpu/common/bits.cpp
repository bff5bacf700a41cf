#include "cpu/common/bits.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/common/parallel.hpp"

namespace millrace::cpu {
namespace {
typedef float Floats __attribute__((vector_size(32)));
typedef std::int32_t Ints __attribute__((vector_size(32)));
}  // namespace

MR_TARGET_CLONES void pack_positive(std::uint32_t* bits, const float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 256, bits += 8) {
    const std::int64_t full = std::min<std::int64_t>(32, (count - i) / 8);
    Ints words{};
    for (std::int64_t j = 0; j < full; ++j) {
      Floats v;
      std::memcpy(&v, values + i + 8 * j, sizeof v);
      words |= ~(v <= 0.0f) & std::int32_t(1u << j);
    }
    if (full < 32)
      for (std::int64_t l = 0; l < count - i - 8 * full; ++l)
        if (!(values[i + 8 * full + l] <= 0)) words[l] |= std::int32_t(1u << full);
    std::memcpy(bits, &words, sizeof words);
  }
}

MR_TARGET_CLONES void apply_bits(float* dst, const float* src, const std::uint32_t* bits, float factor,
                                 std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 256, bits += 8) {
    const std::int64_t full = std::min<std::int64_t>(32, (count - i) / 8);
    Ints words;
    std::memcpy(&words, bits, sizeof words);
    for (std::int64_t j = 0; j < full; ++j) {
      Floats v;
      std::memcpy(&v, src + i + 8 * j, sizeof v);
      v *= factor;
      const Ints kept = Ints(v) & ((words & std::int32_t(1u << j)) != 0);
      std::memcpy(dst + i + 8 * j, &kept, sizeof kept);
    }
    if (full < 32)
      for (std::int64_t l = 0; l < count - i - 8 * full; ++l) {
        const std::int64_t at = i + 8 * full + l;
        dst[at] = std::uint32_t(words[l]) >> full & 1u ? src[at] * factor : 0.0f;
      }
  }
}

}  // namespace millrace::cpu
