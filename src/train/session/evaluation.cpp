#include "train/session/evaluation.hpp"

#include <cstdio>

#include "millrace/base/error.hpp"

namespace millrace {

std::string Evaluation::str() const {
  char text[160];
  if (labels)
    std::snprintf(text, sizeof text, "loss %.4f, top-1 %.2f %%, top-5 %.2f %% of %lld", loss, top1 * 100, top5 * 100,
                  (long long)rows);
  else
    std::snprintf(text, sizeof text, "loss %.6g on %lld rows", loss, (long long)rows);
  return unread == 0 ? text : cat(text, ", ", unread, " more could not be read");
}

}  // namespace millrace
