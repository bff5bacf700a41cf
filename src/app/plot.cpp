#include "app/plot.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"

namespace millrace::app {
namespace {

// Maps values to [0, 1], x to the right and y upwards.
struct Scales {
  double left, right, low, high;

  explicit Scales(const Plot& p) : left(std::log10(p.x.front())), right(std::log10(p.x.back())) {
    low = *std::min_element(p.line.begin(), p.line.end());
    high = std::min(p.top, *std::max_element(p.line.begin(), p.line.end()));
    for (const double y : p.single) {
      low = std::min(low, y);
      high = std::max(high, std::min(y, p.top));
    }
    if (!(right > left)) right = left + 1;
    if (!(high > low)) high = low + 1;
  }
  double x(double value) const { return (std::log10(value) - left) / (right - left); }
  double y(double value) const { return (std::clamp(value, low, high) - low) / (high - low); }
  std::vector<double> decades() const {
    std::vector<double> out;
    for (int d = int(std::ceil(left - 1e-9)); d <= right + 1e-9; ++d) out.push_back(std::pow(10.0, d));
    return out;
  }
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

}  // namespace

const std::string_view plot_beginning =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 430\" font-family=\"sans-serif\" font-size=\"12\">\n";

std::string plot_text(const Plot& p, int width, int height) {
  if (p.x.empty()) return "";
  const Scales at(p);
  std::vector<std::string> grid(std::size_t(height), std::string(std::size_t(width), ' '));
  const auto column = [&](double x) { return std::size_t(std::lround(at.x(x) * (width - 1))); };
  const auto cell = [&](double x, double y) -> char& {
    return grid[std::size_t(std::lround((1 - at.y(y)) * (height - 1)))][column(x)];
  };
  for (const Plot::Mark& mark : p.marks)
    for (std::string& row : grid) row[column(mark.x)] = '|';
  for (std::size_t i = 0; i < p.x.size(); ++i) cell(p.x[i], p.single[i]) = '.';
  for (std::size_t i = 0; i < p.x.size(); ++i) cell(p.x[i], p.line[i]) = '#';
  std::string out = fmt::format("{}\n", p.title);
  for (int row = 0; row < height; ++row) {
    const bool labelled = row == 0 || row == height / 2 || row == height - 1;
    const double y = at.high - (at.high - at.low) * row / (height - 1);
    out += fmt::format("{} {}", labelled ? fmt::format("{:9.3g}", y) : std::string(9, ' '), grid[std::size_t(row)]);
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  std::string axis(std::size_t(width), '-'), words(std::size_t(width) + 8, ' ');
  for (const double decade : at.decades()) {
    axis[column(decade)] = '+';
    const std::string word = fmt::format("{:.0e}", decade);
    words.replace(column(decade), word.size(), word);
  }
  words.erase(words.find_last_not_of(' ') + 1);
  out += fmt::format("{}{}\n{}{}  {}\n", std::string(10, ' '), axis, std::string(10, ' '), words, p.x_title);
  for (const Plot::Mark& mark : p.marks) out += fmt::format("{}| {}\n", std::string(10, ' '), mark.label);
  return out;
}

std::string plot_svg(const Plot& p) {
  if (p.x.empty()) return "";
  const Scales at(p);
  constexpr double left = 70, top = 50, wide = 660, high = 320;
  const auto px = [&](double x) { return left + wide * at.x(x); };
  const auto py = [&](double y) { return top + high * (1 - at.y(y)); };
  const auto fixed = [](double v) { return fmt::format("{:.1f}", v); };
  std::string out =
      std::string(plot_beginning) +
      "<style>:root{--ink:#222;--paper:#fff;--grid:#ddd;--curve:#1f6fb4;--mark:#c0392b}"
      "@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#1b1b1b;--grid:#444;--curve:#6cb2eb;--mark:#ff8a75}}"
      "text{fill:var(--ink)}.grid{stroke:var(--grid)}.single{fill:var(--curve);opacity:.3}"
      ".line{fill:none;stroke:var(--curve);stroke-width:2.5}.mark{stroke:var(--mark);stroke-dasharray:4 3}"
      ".label{fill:var(--mark)}</style>\n"
      "<rect width=\"760\" height=\"430\" style=\"fill:var(--paper)\"/>\n";
  const auto words = [&](double x, double y, const char* more, const std::string& text) {
    out += fmt::format("<text x=\"{}\" y=\"{}\" {}>{}</text>\n", fixed(x), fixed(y), more, escaped(text));
  };
  const auto stroke = [&](const char* kind, double x1, double y1, double x2, double y2) {
    out += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", kind, fixed(x1), fixed(y1),
                       fixed(x2), fixed(y2));
  };
  words(left, 22, "font-size=\"15\"", p.title);
  for (const double decade : at.decades()) {
    stroke("grid", px(decade), top, px(decade), top + high);
    words(px(decade), top + high + 18, "text-anchor=\"middle\"", fmt::format("{:.0e}", decade));
  }
  for (int i = 0; i <= 4; ++i) {
    const double y = at.low + (at.high - at.low) * i / 4;
    stroke("grid", left, py(y), left + wide, py(y));
    words(left - 8, py(y) + 4, "text-anchor=\"end\"", fmt::format("{:.3g}", y));
  }
  words(left + wide / 2, top + high + 42, "text-anchor=\"middle\"", p.x_title);
  words(left, top - 10, "text-anchor=\"end\"", p.y_title);
  for (std::size_t i = 0; i < p.x.size(); ++i)
    out += fmt::format("<circle class=\"single\" cx=\"{}\" cy=\"{}\" r=\"2\"/>\n", fixed(px(p.x[i])),
                       fixed(py(p.single[i])));
  out += "<polyline class=\"line\" points=\"";
  for (std::size_t i = 0; i < p.x.size(); ++i) out += fmt::format("{},{} ", fixed(px(p.x[i])), fixed(py(p.line[i])));
  out += "\"/>\n";
  for (std::size_t i = 0; i < p.marks.size(); ++i) {
    const double x = px(p.marks[i].x);
    stroke("mark", x, top, x, top + high);
    const bool over = x > left + wide / 2;  // labels extend towards the middle, one line each
    words(over ? x - 5 : x + 5, top + 14 + 16 * double(i),
          over ? "class=\"label\" text-anchor=\"end\"" : "class=\"label\"", p.marks[i].label);
  }
  return out + "</svg>\n";
}

}  // namespace millrace::app
