#include "runs/json_lines.hpp"

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/flat_json.hpp"

namespace millrace {

void read_lines(const std::filesystem::path& path, const std::function<void(std::string_view, std::int64_t)>& on) {
  require_regular_file(path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(Exit::data, "cannot open {} ({})", path.string(), std::strerror(errno));
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) on(line, ++number);
  if (in.bad()) fail(Exit::data, "cannot read {} ({})", path.string(), std::strerror(errno));
}

std::int64_t last_step(const std::filesystem::path& path) {
  constexpr std::streamoff tail = 1 << 16;
  require_regular_file(path);
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return 0;
  const std::streamoff bytes = in.tellg(), begin = std::max<std::streamoff>(0, bytes - tail);
  std::string text(std::size_t(bytes - begin), '\0');
  in.seekg(begin);
  in.read(text.data(), std::streamsize(text.size()));
  const auto end = text.rfind('\n');
  if (end == std::string::npos) return 0;
  const auto before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const std::size_t from = before == std::string::npos ? 0 : before + 1;
  std::int64_t step = 0;
  parse_flat_json(std::string_view(text).substr(from, end - from), [&](std::string_view key, double value) {
    if (key == "step" && std::isfinite(value)) step = std::int64_t(value);
  });
  return step;
}

}  // namespace millrace
