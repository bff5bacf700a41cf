#pragma once
#include <cstdint>
#include <string>

namespace millrace {

// The result of one evaluation of the validation data.
struct Evaluation {
  double loss = 0, top1 = 0, top5 = 0;
  std::int64_t rows = 0;    // samples that were evaluated
  std::int64_t unread = 0;  // samples that could not be read and were skipped (data.on_error)
  bool labels = true;
  std::string str() const;
};

}  // namespace millrace
