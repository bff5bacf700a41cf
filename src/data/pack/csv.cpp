#include "data/pack/csv.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "data/pack/importers.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Accepts infinity and NaN too.
std::optional<double> number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> finite(std::string_view text) {
  const auto value = number(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

char separator_of(std::string_view line) {
  for (const char c : {';', '\t'})
    if (line.find(c) != line.npos) return c;
  return ',';
}

// Splits a line into fields. Returns false if a quote is not closed. A doubled quote inside of quotes is not replaced.
bool split(std::string_view line, char separator, std::vector<std::string_view>& fields) {
  fields.clear();
  for (;;) {
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    std::size_t end = 0;
    if (line.starts_with('"')) {
      for (end = 1; (end = line.find('"', end)) != line.npos && line.substr(end + 1).starts_with('"');) end += 2;
      if (end == line.npos) return false;
      fields.push_back(line.substr(1, end - 1));
      end = line.find(separator, end + 1);
    } else {
      end = line.find(separator);
      fields.push_back(trimmed(line.substr(0, end)));
    }
    if (end == line.npos) return true;
    line.remove_prefix(end + 1);
  }
}

// Whether a line is a header: some field is not a number, and the numbers look like column names ("label,0,1,2"), not
// like measured values.
bool is_header(const std::vector<std::string_view>& fields) {
  bool words = false;
  for (const std::string_view f : fields) {
    const bool digits = !f.empty() && f.find_first_not_of("0123456789") == f.npos;
    if (number(f) && !digits) return false;
    words = words || !digits;
  }
  return words;
}

class Parser {
 public:
  Parser(const std::string& path, const std::optional<std::string>& label) : label_(label) { out_.path = path; }

  CsvTable run() {
    const std::string content = read_maybe_gzip(out_.path);
    std::string_view rest = content;
    if (rest.starts_with("\xef\xbb\xbf"))
      rest.remove_prefix(3);  // the byte order mark of UTF-8, which spreadsheets write
    while (!rest.empty()) {
      const auto end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
      ++line_;
      if (line.find('\0') != line.npos)
        fail_at_line("a byte of value 0: this is not 8-bit text. save the table as UTF-8");
      if (!trimmed(line).empty()) add_line(line);
    }
    if (out_.rows == 0) fail(Exit::data, "{} holds no rows", out_.path);
    number_classes();
    return std::move(out_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail_at_line(fmt::format_string<Args...> form, Args&&... args) const {
    fail(Exit::data, "{}:{}: {}", out_.path, line_, fmt::format(form, std::forward<Args>(args)...));
  }

  void add_line(std::string_view line) {
    const bool first = out_.columns.empty();
    if (first) separator_ = separator_of(line);
    if (!split(line, separator_, fields_)) fail_at_line("a quote is not closed");
    if (first && read_header()) return;
    if (fields_.size() != out_.columns.size())
      fail_at_line("{} fields, the first line has {}. every line needs the same number", fields_.size(),
                   out_.columns.size());
    for (std::size_t c = 0; c < fields_.size(); ++c)
      if (c == out_.label_at)
        add_label(c);
      else
        out_.values.push_back(float(value(c, "fill gaps with a number, give words numbers, or leave the column out")));
    ++out_.rows;
  }

  // Evaluates the first line. Returns true if it is a header.
  bool read_header() {
    out_.header = is_header(fields_);
    for (std::size_t c = 0; c < fields_.size(); ++c)
      out_.columns.push_back(out_.header ? std::string(fields_[c]) : fmt::format("{}", c + 1));
    if (label_ && !label_->empty()) out_.label_at = label_column(*label_);
    if (label_ && label_->empty() && fields_.size() == 1) out_.label_at = 0;
    return out_.header;
  }

  // The position of a column that is given by its name in the header or its number from 1.
  std::size_t label_column(const std::string& label) const {
    const auto& names = out_.columns;
    const auto found = out_.header ? std::count(names.begin(), names.end(), label) : 0;
    if (found > 1) fail(Exit::data, "{} has {} columns '{}'. give --y-name its number", out_.path, found, label);
    if (found == 1) return std::size_t(std::find(names.begin(), names.end(), label) - names.begin());
    std::size_t wanted = 0;
    const auto [end, problem] = std::from_chars(label.data(), label.data() + label.size(), wanted);
    if (problem == std::errc() && end == label.data() + label.size() && wanted >= 1 && wanted <= names.size())
      return wanted - 1;
    std::string known;
    for (std::size_t c = 0; c < std::min<std::size_t>(names.size(), 20); ++c)
      known += fmt::format("{}{}", c ? ", " : "", names[c]);
    fail(Exit::data, "{} has no column '{}' ({}). name the labels' with --y-name: its name, or its number from 1",
         out_.path, label, out_.header ? known : fmt::format("{} without names", names.size()));
  }

  [[noreturn]] void fail_at_column(std::size_t c, const char* advice) const {
    const std::string column = out_.header ? fmt::format("'{}'", out_.columns[c]) : out_.columns[c];
    if (fields_[c].empty()) fail_at_line("the cell in column {} is empty. {}", column, advice);
    fail_at_line("'{}' in column {} is not a number. {}", fields_[c], column, advice);
  }

  double value(std::size_t c, const char* advice) const {
    const auto value = finite(fields_[c]);
    if (!value) fail_at_column(c, advice);
    if (std::abs(*value) > double(std::numeric_limits<float>::max()))
      fail_at_line("{} in column {} is too large for 32-bit floating point. scale the column", fields_[c], c + 1);
    return *value;
  }

  // The first row determines whether labels are numbers or words.
  void add_label(std::size_t c) {
    const bool is_number = number(fields_[c]).has_value(), is_word = !is_number && !fields_[c].empty();
    if (out_.rows == 0) words_ = is_word;
    if (words_ && !is_word)
      fail_at_line("{} in column {}, where others are words. labels must be all numbers or all words",
                   is_number ? fmt::format("the number {}", fields_[c]) : "an empty cell", c + 1);
    if (words_)
      names_.emplace_back(fields_[c]);
    else
      out_.labels.push_back(value(c, "labels must be all numbers or all words"));
  }

  void number_classes() {
    if (!words_) return;
    out_.classes = names_;
    std::sort(out_.classes.begin(), out_.classes.end());
    out_.classes.erase(std::unique(out_.classes.begin(), out_.classes.end()), out_.classes.end());
    for (const auto& name : names_)
      out_.labels.push_back(
          double(std::lower_bound(out_.classes.begin(), out_.classes.end(), name) - out_.classes.begin()));
  }

  const std::optional<std::string> label_;
  CsvTable out_;
  std::size_t line_ = 0;
  char separator_ = ',';
  bool words_ = false;
  std::vector<std::string_view> fields_;
  std::vector<std::string> names_;  // class names of the label column, by row
};

}  // namespace

CsvTable read_csv(const std::string& path, const std::optional<std::string>& label) {
  return Parser(path, label).run();
}

}  // namespace millrace
