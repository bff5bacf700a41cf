#pragma once

namespace millrace {

// What the backward pass computes again instead of keeping it; see model/recompute.hpp.
enum class Recompute { off, selective, full };

}  // namespace millrace
