// FilePath: the path of a shard. It either owns its text, or it refers to a folder and a name that another object owns.
// The second form saves memory for a million shards in a few folders.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace millrace {

class FilePath {
 public:
  FilePath() = default;
  FilePath(std::string path) : own_(std::make_shared<const std::string>(std::move(path))), name_(*own_) {}
  FilePath(const char* path) : FilePath(std::string(path)) {}
  FilePath(const std::filesystem::path& path) : FilePath(path.string()) {}
  // Refers to the texts, whose owner must outlive this object and its copies.
  FilePath(std::string_view folder_with_slash, std::string_view name) : folder_(folder_with_slash), name_(name) {}

  std::string str() const { return std::string(folder_) += name_; }
  operator std::string() const { return str(); }
  operator std::filesystem::path() const { return str(); }
  bool empty() const { return folder_.empty() && name_.empty(); }
  friend bool operator==(const FilePath& a, const FilePath& b) { return a.str() == b.str(); }
  friend std::string operator+(const FilePath& a, std::string_view more) { return a.str() += more; }
  friend std::ostream& operator<<(std::ostream& out, const FilePath& p) { return out << p.folder_ << p.name_; }

 private:
  std::shared_ptr<const std::string> own_;
  std::string_view folder_, name_;
};

}  // namespace millrace

template <>
struct fmt::formatter<millrace::FilePath> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  auto format(const millrace::FilePath& path, format_context& context) const {
    const std::string text = path.str();
    return std::copy(text.begin(), text.end(), context.out());
  }
};
