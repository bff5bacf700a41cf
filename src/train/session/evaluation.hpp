#pragma once
#include <cstdint>
#include <string>

namespace millrace {

// The result of one evaluation of the validation data.
struct Evaluation {
  double loss = 0, top1 = 0, top5 = 0;
  std::int64_t rows = 0, unread = 0;  // counted; skipped by data.on_error
  bool labels = true;
  std::string str() const;
};

}  // namespace millrace
