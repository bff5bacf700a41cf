#include "train/session/evaluation.hpp"

#include <fmt/core.h>

#include "millrace/base/error.hpp"

namespace millrace {

std::string Evaluation::str() const {
  const std::string text =
      labels ? fmt::format("loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % of {}", loss, top1 * 100, top5 * 100, rows)
             : fmt::format("loss {:.6g} on {} rows", loss, rows);
  return unread == 0 ? text : fmt::format("{}, {} more could not be read", text, unread);
}

}  // namespace millrace
