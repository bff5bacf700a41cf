#include "report/html.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

namespace millrace::report {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else if (static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\t')
      out += c;
    else
      out += ' ';
  }
  return out;
}

std::string fixed(double v, int decimals) {
  if (!std::isfinite(v)) return "–";
  const std::string text = fmt::format("{:.{}f}", v, decimals);
  if (text[0] != '-') return text;
  const std::string absolute = text.substr(1);
  return absolute.find_first_of("123456789") == absolute.npos ? absolute : "−" + absolute;
}

std::string number(double v, int digits) {
  if (!std::isfinite(v)) return "–";
  const double size = std::abs(v);
  if (size == 0) return "0";
  if (size < 1e-3) {
    std::string out = fmt::format("{:.{}e}", v, digits - 1);  // 1.00e-04
    const auto e = out.find('e');
    const int power = std::atoi(out.c_str() + e + 1);
    return out.substr(0, e) + "·10<sup>" + (power < 0 ? "−" : "") + std::to_string(std::abs(power)) + "</sup>";
  }
  static constexpr const char* units[] = {"", " k", " M", " G", " T", " P"};
  int unit = 0;
  double scaled = v;
  if (size >= 1e4)
    for (; std::abs(scaled) >= 999.5 && unit < 5; ++unit) scaled /= 1000;
  const double place = std::min(1.0, std::pow(10.0, std::floor(std::log10(std::abs(scaled))) - digits + 1));
  scaled = std::round(scaled / place) * place;  // so that 9.996 is shown with the decimals of 10.0
  const int before = std::max(1, int(std::floor(std::log10(std::abs(scaled)))) + 1);
  const int leading = std::abs(scaled) < 1 ? int(-std::floor(std::log10(std::abs(scaled)))) - 1 : 0;
  return fixed(scaled, std::clamp(std::abs(scaled) < 1 ? digits + leading : digits - before, 0, 6)) + units[unit];
}

std::string integer_text(double v) {
  std::string out = fixed(v, 0);
  if (out.size() <= 4) return out;
  for (std::size_t at = out.size(); at > 3;) out.insert(at -= 3, "\u202f");
  return out;
}

std::string bytes_text(double v) {
  const std::string text = number(v);
  return text + (std::isdigit(static_cast<unsigned char>(text.back())) ? " B" : "B");
}

std::string seconds_text(double s) {
  if (!std::isfinite(s)) return "–";
  if (s < 1e-3) return number(s * 1e6) + " µs";
  if (s < 1) return number(s * 1e3) + " ms";
  if (s < 120) return number(s) + " s";
  const long long rounded = std::llround(s);
  if (rounded < 7200) return fmt::format("{} min {:02} s", rounded / 60, rounded % 60);
  return fmt::format("{} h {:02} min", rounded / 3600, rounded / 60 % 60);
}

std::string percent(double share) { return std::isfinite(share) ? fixed(100 * share, 1) + " %" : "–"; }

}  // namespace millrace::report
