#include "simulated_cuda/nccl/arithmetic.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "millrace/base/types.hpp"

namespace millrace::simulated {
namespace {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, f16>, float, T>;

// Calls body with a value of the type. False: the type is not simulated.
template <class Body>
bool dispatch(ncclDataType_t type, const Body& body) {
  switch (type) {
    case ncclInt8:
      return body(std::int8_t{}), true;
    case ncclUint8:
      return body(std::uint8_t{}), true;
    case ncclInt32:
      return body(std::int32_t{}), true;
    case ncclUint32:
      return body(std::uint32_t{}), true;
    case ncclInt64:
      return body(std::int64_t{}), true;
    case ncclUint64:
      return body(std::uint64_t{}), true;
    case ncclFloat16:
      return body(f16{}), true;
    case ncclBfloat16:
      return body(bf16{}), true;
    case ncclFloat32:
      return body(float{}), true;
    case ncclFloat64:
      return body(double{}), true;
    default:
      return false;
  }
}

template <class T, class Combine>
void fold(const std::vector<const char*>& from, char* to, std::size_t count, Wide<T> divisor, const Combine& combine) {
  T* const out = reinterpret_cast<T*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    auto total = Wide<T>(reinterpret_cast<const T*>(from[0])[i]);
    for (std::size_t r = 1; r < from.size(); ++r)
      total = combine(total, Wide<T>(reinterpret_cast<const T*>(from[r])[i]));
    out[i] = T(Wide<T>(total / divisor));
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  std::size_t bytes = 0;
  dispatch(type, [&](auto value) { bytes = sizeof value; });
  return bytes;
}

void reduce(ncclDataType_t type, ncclRedOp_t reduction, const std::vector<const char*>& from, char* to,
            std::size_t count) {
  dispatch(type, [&]<class T>(T) {
    using W = Wide<T>;
    const W ranks = W(from.size());
    switch (reduction) {
      case ncclProd:
        return fold<T>(from, to, count, W(1), [](W a, W b) { return W(a * b); });
      case ncclMax:
        return fold<T>(from, to, count, W(1), [](W a, W b) { return std::max(a, b); });
      case ncclMin:
        return fold<T>(from, to, count, W(1), [](W a, W b) { return std::min(a, b); });
      case ncclAvg:
        return fold<T>(from, to, count, ranks, [](W a, W b) { return W(a + b); });
      default:
        return fold<T>(from, to, count, W(1), [](W a, W b) { return W(a + b); });
    }
  });
}

}  // namespace millrace::simulated
