#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "report/html.hpp"
#include "report/plot.hpp"

namespace millrace::report {

double Axis::place(double v) const {
  if (top > 0) return v >= top ? 1e9 : std::log((top - low) / (top - v)) / std::log((top - low) / (top - high));
  if (logarithmic) return std::log(v / low) / std::log(high / low);
  return (v - low) / (high - low);
}

Axis linear_axis(double low, double high, int count) {
  if (!(high > low)) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room / 2;
    high = low + room;
  }
  Axis out{low, high, false, {}};
  const double rough = (high - low) / std::max(1, count), power = std::pow(10.0, std::floor(std::log10(rough)));
  const double ratio = rough / power;
  const double step = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k) out.ticks.push_back(k * step);
  return out;
}

Axis logarithmic_axis(double low, double high) {
  if (!(high > low)) high = low * 1.1;
  Axis out{low, high, true, {}};
  const bool few = std::log10(high / low) < 2.5;
  for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10)
    for (const double factor : {1.0, 2.0, 5.0})
      if ((factor == 1 || few) && power * factor >= low * 0.999 && power * factor <= high * 1.001)
        out.ticks.push_back(power * factor);
  while (out.ticks.size() > 7) {  // keep every second tick
    std::vector<double> fewer;
    for (std::size_t i = 0; i < out.ticks.size(); i += 2) fewer.push_back(out.ticks[i]);
    out.ticks = fewer;
  }
  return out;
}

Axis accuracy_axis(double low, double high) {
  Axis out{low, high, false, {}, 100};
  for (const double tick : {0.0, 50.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99})
    if (tick >= low && tick <= high) out.ticks.push_back(tick);
  return out;
}

// Uses as many decimals as adjacent ticks need to differ. Large numbers get a unit.
std::string tick_text(const Axis& axis, double tick) {
  const double max = std::max(std::abs(axis.low), std::abs(axis.high));
  if (tick == 0 || (!axis.logarithmic && std::abs(tick) < 1e-12 * max)) return "0";
  if (axis.top > 0) return fmt::format("{:g}", tick);
  if (axis.logarithmic || axis.ticks.size() < 2) return number(tick, 2);
  const double step = axis.ticks[1] - axis.ticks[0];
  double divisor = 1;
  const char* unit = "";
  for (const auto& [size, name] : {std::pair{1e3, " k"}, {1e6, " M"}, {1e9, " G"}, {1e12, " T"}})
    if ((max >= 10 * size || (size > 1e3 && max >= size)) && step >= 0.1 * size) {
      divisor = size;
      unit = name;
    }
  const auto decimals_of = [&] { return std::clamp(int(-std::floor(std::log10(step / divisor) + 1e-9)), 0, 9); };
  if (decimals_of() > 3) {
    divisor = 1;
    unit = "";
  }
  const int decimals = decimals_of();
  if (decimals > 4) return number(tick, 3);
  if (decimals == 0 && divisor == 1) return integer_text(tick);
  return fixed(tick / divisor, decimals) + unit;
}

namespace {

// The number of characters that a browser shows: without markup, one for each code point.
double characters(const std::string& html) {
  bool markup = false;
  double count = 0;
  for (const char c : html) {
    if (c == '<') markup = true;
    if (!markup && (c & 0xc0) != 0x80) ++count;
    if (c == '>') markup = false;
  }
  return count;
}

// A label is centered below its tick. Labels at the edges are shifted to stay within the plot.
struct Label {
  std::string text;
  double place;        // from 0 to 1
  double left, right;  // in characters
  const char* css;
};

std::vector<Label> labels_of(const Axis& axis) {
  std::vector<Label> out;
  for (const double tick : axis.ticks) {
    const std::string text = tick_text(axis, tick);
    const double place = axis.place(tick), at = min_width_chars * place, length = characters(text);
    if (place < 0.03)
      out.push_back({text, place, at, at + length, "x first"});
    else if (place > 0.97 || at + length / 2 > min_width_chars + 1)
      out.push_back({text, place, at - length, at, "x last"});
    else
      out.push_back({text, place, at - length / 2, at + length / 2, "x"});
  }
  return out;
}

bool are_separate(const Axis& axis) {
  const std::vector<Label> labels = labels_of(axis);
  return std::adjacent_find(labels.begin(), labels.end(),
                            [](const Label& a, const Label& b) { return b.left < a.right + 1; }) == labels.end();
}

}  // namespace

Axis x_axis(double low, double high, int count) {
  Axis axis = linear_axis(low, high, count);
  while (!are_separate(axis) && --count > 0) axis = linear_axis(low, high, count);
  if (count == 0) axis.ticks.resize(1);
  return axis;
}

std::string x_axis_labels(const Axis& axis) {
  std::string out;
  for (const Label& l : labels_of(axis))
    out += fmt::format("<span class=\"{}\" style=\"left:{}%\">{}</span>", l.css, fixed(100 * l.place, 2), l.text);
  return out;
}

std::string second_axis_labels(const Axis& axis) {
  std::string out;
  for (const Label& l : labels_of(axis))
    out += fmt::format("<span class=\"e{}\" style=\"left:{}%\">{}</span>", l.css + 1, fixed(100 * l.place, 2), l.text);
  return out;
}

double quantile(std::vector<double> values, double share) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return 0;
  const auto at = values.begin() + std::ptrdiff_t(std::llround(share * double(values.size() - 1)));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace millrace::report
