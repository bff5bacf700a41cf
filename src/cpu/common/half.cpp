#include "cpu/common/half.hpp"

#include <cstring>

#include "cpu/common/parallel.hpp"

namespace millrace::cpu {

void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) {
  const std::size_t to = size_of(dst_type), from = size_of(src_type);
  parallel_ranges(count, 16384, [&](std::int64_t begin, std::int64_t end) {
    auto* d = static_cast<std::byte*>(dst) + std::size_t(begin) * to;
    const auto* s = static_cast<const std::byte*>(src) + std::size_t(begin) * from;
    if (dst_type == src_type) {
      std::memcpy(d, s, std::size_t(end - begin) * to);
    } else if (dst_type == DType::f32) {
      to_float(reinterpret_cast<float*>(d), s, src_type, end - begin);
    } else if (src_type == DType::f32) {
      from_float(d, dst_type, reinterpret_cast<const float*>(s), end - begin);
    } else {
      float piece[1024];
      for (std::int64_t at = 0; at < end - begin; at += 1024) {
        const std::int64_t n = std::min<std::int64_t>(1024, end - begin - at);
        to_float(piece, s + std::size_t(at) * from, src_type, n);
        from_float(d + std::size_t(at) * to, dst_type, piece, n);
      }
    }
  });
}

}  // namespace millrace::cpu
