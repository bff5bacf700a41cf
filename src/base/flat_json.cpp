#include "millrace/base/flat_json.hpp"

#include <charconv>
#include <limits>

namespace millrace {
namespace {

// Reads tokens from the beginning of a text. Each take function skips blanks and returns false if the next token is
// another one.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}
  bool take(char c) {
    skip_blanks();
    return at_ < end_ && *at_ == c ? (++at_, true) : false;
  }
  bool at_end() {
    skip_blanks();
    return at_ == end_;
  }
  bool take_name(std::string_view& name) {
    if (!take('"')) return false;
    const char* begin = at_;
    while (at_ < end_ && *at_ != '"' && *at_ != '\\') ++at_;
    name = {begin, std::size_t(at_ - begin)};
    return take('"');
  }
  bool take_value(double& value) {
    skip_blanks();
    value = 0;
    if (take_word("null")) {
      value = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    if (take_word("true")) {
      value = 1;
      return true;
    }
    if (take_word("false")) return true;
    const auto [after, error] = std::from_chars(at_, end_, value);
    at_ = after;
    return error == std::errc();
  }

 private:
  void skip_blanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool take_word(std::string_view word) {
    if (std::string_view(at_, std::size_t(end_ - at_)).substr(0, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  const char* at_;
  const char* end_;
};

}  // namespace

bool parse_flat_json(std::string_view line, const std::function<void(std::string_view, double)>& on) {
  Scanner in(line);
  if (!in.take('{')) return false;
  if (in.take('}')) return in.at_end();
  do {
    std::string_view name;
    double value = 0;
    if (!in.take_name(name) || !in.take(':') || !in.take_value(value)) return false;
    on(name, value);
  } while (in.take(','));
  return in.take('}') && in.at_end();
}

}  // namespace millrace
