#include "report/plot.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "report/html.hpp"

namespace millrace::report {
namespace {

// A point as SVG coordinates: the plot is 1000 wide and 1000 high, and y counts from the top.
std::string at(const Axis& x, const Axis& y, double xv, double yv) {
  const double height = y.logarithmic && yv <= 0 ? -0.2 : std::clamp(y.place(yv), -0.2, 1.2);
  return fmt::format("{:.1f} {:.1f}", 1000 * x.place(xv), 1000 - 1000 * height);
}

// Adds grid, ticks and axis labels to what is drawn.
std::string framed(const PlotText& text, const Axis& x, const Axis& y, const std::string& drawn) {
  std::string grid, labels;
  for (const double tick : y.ticks) {
    const double place = y.place(tick);
    if (place < -1e-6 || place > 1 + 1e-6) continue;
    grid += fmt::format("M0 {}H1000", fixed(1000 - 1000 * place, 1));
    labels +=
        fmt::format("<span class=\"y\" style=\"bottom:{}%\">{}</span>", fixed(100 * place, 2), tick_text(y, tick));
  }
  labels += x_axis_labels(x);
  const bool epochs = text.steps_per_epoch > 0;
  if (epochs) labels += second_axis_labels(x_axis(x.low / text.steps_per_epoch, x.high / text.steps_per_epoch, 5));
  return fmt::format(
      "<div class=\"frame{}\"><div class=\"unit\">{}{}</div><div class=\"area\"><svg viewBox=\"0 0 1000 1000\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\"><path class=\"grid\" d=\"{}\"/>{}</svg>{}</div><div "
      "class=\"xlabel\">{}{}</div></div>",
      epochs ? " epochs" : "", escaped(text.unit),
      y.logarithmic ? ", logarithmic"
      : y.top > 0   ? ", logarithmic in the error"
                    : "",
      escaped(text.title), grid, drawn, labels, escaped(text.x_label), epochs ? "; below: epoch" : "");
}

std::string figure(const PlotText& text, const std::string& legend, const std::string& body) {
  return fmt::format("<figure><figcaption>{}</figcaption><div class=\"legend\">{}</div>{}</figure>\n",
                     escaped(text.title), legend, body);
}

// Calls on(begin, end) for each range of indices without a gap.
template <class F>
void stretches(const std::vector<double>& values, const F& on) {
  for (std::size_t i = 0; i < values.size();) {
    if (!std::isfinite(values[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < values.size() && std::isfinite(values[end])) ++end;
    on(i, end);
    i = end;
  }
}

std::string band_path(const Line& line, const Axis& x, const Axis& y) {
  std::string d;
  stretches(line.curve.low, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) d += (i == begin ? "M" : "L") + at(x, y, line.x[i], line.curve.high[i]);
    for (std::size_t i = end; i-- > begin;) d += "L" + at(x, y, line.x[i], line.curve.low[i]);
    d += "Z";
  });
  return d;
}

std::string line_path(const Line& line, const std::vector<double>& values, const Axis& x, const Axis& y) {
  std::string d;
  stretches(values, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) d += (i == begin ? "M" : "L") + at(x, y, line.x[i], values[i]);
    if (end - begin == 1) d += "h.1";
  });
  return d;
}

std::string dots_path(const Line& line, const Axis& x, const Axis& y) {
  std::string d;
  for (std::size_t i = 0; i < line.x.size(); ++i)
    if (std::isfinite(line.curve.mid[i])) d += "M" + at(x, y, line.x[i], line.curve.mid[i]) + "h.1";
  return d;
}

constexpr std::size_t max_dots = 40;  // more dots would look like one thick line

constexpr std::size_t min_smoothed = 30;  // fewer points are drawn as they are

bool is_smoothed(const Line& line) { return line.smooth && line.curve.mid.size() >= min_smoothed; }

bool has_band(const Line& line) { return !line.dots && line.curve.low != line.curve.high; }

// Covers the range of most values, so that a single outlier does not flatten the curve.
Axis axis_of(const PlotText& text, const std::vector<Line>& lines, bool* clipped) {
  std::vector<double> lows, highs;
  double low = 1e300, high = -1e300, min = 1e300, max = -1e300;
  for (const Line& line : lines)
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      if (!std::isfinite(line.curve.mid[i])) continue;
      low = std::min(low, line.curve.mid[i]);
      high = std::max(high, line.curve.mid[i]);
      const double bottom = line.dots ? line.curve.mid[i] : line.curve.low[i];
      const double top = line.dots ? line.curve.mid[i] : line.curve.high[i];
      lows.push_back(bottom);
      highs.push_back(top);
      min = std::min(min, bottom);
      max = std::max(max, top);
    }
  const double usual = quantile(highs, 0.98), usual_low = quantile(lows, 0.02);
  if (high > 4 * usual && usual > 0) high = usual * 1.5;  // the line itself then leaves the plot
  high = std::max(std::min(high, 4 * std::abs(usual) + 1e-300), usual);
  low = std::min(low, usual_low);
  if (max <= 1.5 * high) high = max;
  if (min >= low - 0.5 * (high - low)) low = min;
  *clipped = max > high || (min < low && !text.from_zero);
  // Of accuracies near 100 %, most of the plot would be empty.
  if (text.accuracy && high > 90 && low < 100 && 100 - low > 4 * (100 - high))
    return accuracy_axis(std::max(0.0, low), high < 100 ? 100 - 0.8 * (100 - high) : 100 - 0.05 * (100 - low));
  if (text.may_be_logarithmic && low > 0 && high > 40 * low) return logarithmic_axis(low * 0.9, high * 1.1);
  if (text.from_zero) return linear_axis(0, high > 0 ? high * 1.05 : 1, 5);
  const double room = 0.05 * (high - low);
  return linear_axis(low >= 0 && low < 0.3 * high ? 0 : low - room, high + room, 5);
}

// The lines of one curve: its values and, over them, the smoothed ones.
std::string strokes_of(const Line& line, const Axis& x, const Axis& y) {
  const std::string color = fmt::format("c{}", line.color);
  const bool few = line.dots && line.x.size() <= max_dots, smooth = is_smoothed(line);
  std::string out = fmt::format("<path class=\"line {}{}\" d=\"{}\"/>", color,
                                few      ? " thin"
                                : smooth ? " raw"
                                         : "",
                                line_path(line, line.curve.mid, x, y));
  if (smooth)
    out += fmt::format("<path class=\"line {}\" d=\"{}\"/>", color, line_path(line, smoothed(line.curve.mid), x, y));
  if (few) out += fmt::format("<path class=\"dots {}\" d=\"{}\"/>", color, dots_path(line, x, y));
  return out;
}

// The name of a curve with its color and last value; "" if it has none.
std::string legend_entry(const Line& line) {
  double last = NAN;
  for (const double v : is_smoothed(line) ? smoothed(line.curve.mid) : line.curve.mid)
    if (std::isfinite(v)) last = v;
  if (!std::isfinite(last)) return "";
  if (line.median) last = quantile(line.curve.mid, 0.5);
  return fmt::format("<span><i class=\"key {}c{}\"></i>{}{}{}</b></span> ", line.dots ? "dot " : "", line.color,
                     escaped(line.name), line.median ? ", median <b>" : " <b>", number(last));
}

// What is drawn besides the line.
std::string drawn_note(bool smooth, bool band) {
  std::string out;
  if (smooth) out = band ? "line: smoothed; light line: median" : "line: smoothed; light line: each step";
  if (band) out += fmt::format("{}band: minimum to maximum", smooth ? "; " : "line: median; ");
  return out.empty() ? out : fmt::format("<span class=\"quiet\">{}</span>", out);
}

}  // namespace

std::vector<double> smoothed(const std::vector<double>& values) {
  std::vector<double> out = values;
  const double width = std::max(1.0, double(values.size()) / 75);
  const auto reach = std::size_t(2.5 * width);
  stretches(values, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      // At the beginning the window is symmetric, because a loss falls steeply there.
      const std::size_t left = std::min(reach, i - begin), right = std::min({reach, end - 1 - i, i - begin});
      double sum = 0, weights = 0;
      for (std::size_t k = i - left; k <= i + right; ++k) {
        const double distance = (double(k) - double(i)) / width, weight = std::exp(-0.5 * distance * distance);
        sum += weight * values[k];
        weights += weight;
      }
      out[i] = sum / weights;
    }
  });
  return out;
}

std::string plot(const PlotText& text, const std::vector<Line>& lines) {
  double begin = 1e300, end = -1e300;
  for (const Line& line : lines)
    for (std::size_t i = 0; i < line.x.size(); ++i)
      if (std::isfinite(line.curve.mid[i])) {
        begin = std::min(begin, line.x[i]);
        end = std::max(end, line.x[i]);
      }
  if (end < begin) return "";
  bool clipped = false;
  const Axis x = x_axis(begin, end, 5), y = axis_of(text, lines, &clipped);
  std::string bands, strokes, legend;
  bool any_band = false, any_smooth = false;
  for (const Line& line : lines) {
    any_band = any_band || has_band(line);
    any_smooth = any_smooth || is_smoothed(line);
    if (has_band(line)) bands += fmt::format("<path class=\"band c{}\" d=\"{}\"/>", line.color, band_path(line, x, y));
    strokes += strokes_of(line, x, y);
    legend += legend_entry(line);
  }
  legend += drawn_note(any_smooth, any_band);
  if (clipped) legend += "<span class=\"quiet\">outliers lie outside the plot</span>";
  return figure(text, legend, framed(text, x, y, bands + strokes));
}

std::string stacked_areas(const PlotText& text, const std::vector<double>& begin, const std::vector<double>& end,
                          const std::vector<StackedSeries>& layers) {
  if (begin.empty()) return "";
  const std::size_t count = begin.size();
  std::vector<double> totals(count, 0.0), below(count, 0.0);
  double all = 0;
  for (const StackedSeries& layer : layers)
    for (std::size_t i = 0; i < count; ++i)
      if (std::isfinite(layer.values[i])) {
        totals[i] += layer.values[i];
        all += layer.values[i] * (end[i] - begin[i]);
      }
  const double max = *std::max_element(totals.begin(), totals.end()), usual = quantile(totals, 0.98);
  const bool clipped = max > 1.5 * usual && usual > 0;
  const Axis x = x_axis(begin.front(), end.back(), 5), y = linear_axis(0, (clipped ? 1.2 * usual : max) * 1.05, 5);
  std::string drawn, legend;
  for (const StackedSeries& layer : layers) {
    double sum = 0;
    std::string top, bottom;
    for (std::size_t i = 0; i < count; ++i) {
      const double value = std::isfinite(layer.values[i]) ? layer.values[i] : 0;
      sum += value * (end[i] - begin[i]);
      const double low = below[i];
      below[i] += value;
      top += fmt::format("{}{}L{}", i == 0 ? "M" : "L", at(x, y, begin[i], below[i]), at(x, y, end[i], below[i]));
      bottom = fmt::format("L{}L{}", at(x, y, end[i], low), at(x, y, begin[i], low)) + bottom;
    }
    if (sum <= 0) continue;
    drawn += fmt::format("<path class=\"fill {}\" d=\"{}{}Z\"><title>{}</title></path>", layer.css, top, bottom,
                         escaped(layer.name));
    const double steps = end.back() - begin.front();
    legend += fmt::format("<span><i class=\"key {}\"></i>{} <b>{}</b> <small>{}</small></span> ", layer.css,
                          escaped(layer.name), number(sum / steps), percent(all > 0 ? sum / all : 0));
  }
  legend += "<span class=\"quiet\">in % of the steps, without what lies between them</span>";
  if (clipped) legend += "<span class=\"quiet\">outliers lie outside the plot</span>";
  return figure(text, legend, framed(text, x, y, drawn));
}

}  // namespace millrace::report
