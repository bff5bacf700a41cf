// Plots: from numbers to HTML with inline SVG. The SVG stretches to the available width. Labels are text beside it, so
// they keep their size on a phone and on paper.
#pragma once
#include <string>
#include <vector>

#include "millrace/runs/curves.hpp"

namespace millrace::report {

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<double> ticks = {};
  double top = 0;                // above 0: logarithmic in the distance to this value, which the axis does not reach
  double place(double v) const;  // 0 at low, 1 at high; not clamped
};
// An axis with about `count` ticks at round numbers within [low, high].
Axis linear_axis(double low, double high, int count);
Axis logarithmic_axis(double low, double high);  // both bounds above 0
// For accuracies in percent, so that 98, 99 and 99.5 differ as 80, 90 and 95 do. The bounds are below 100.
Axis accuracy_axis(double low, double high);
std::string tick_text(const Axis&, double tick);

// The width of a plot on a narrow phone (320 px), in characters.
constexpr double min_width_chars = 26;
// The axis below a plot: about `count` ticks, or fewer when their labels would overlap at min_width_chars.
Axis x_axis(double low, double high, int count);
std::string x_axis_labels(const Axis&);
// A second row of labels below the first, for the same places in another unit.
std::string second_axis_labels(const Axis&);

// A centred average with weights that fall with the distance; gaps stay gaps.
std::vector<double> smoothed(const std::vector<double>&);

// The value below which the given share of the finite values lies; 0 when none is finite.
double quantile(std::vector<double>, double share);

struct Line {
  std::string name;
  int color = 0;          // number of the CSS class c0, c1, ...
  std::vector<double> x;  // ascending
  Curve curve;            // the band is drawn where low and high differ
  bool dots = false;      // single values, drawn as dots joined by a thin line
  bool median = false;    // the legend shows the median instead of the last value
  bool smooth = false;    // a smoothed line over the values, which are drawn lightly
};
struct PlotText {
  std::string title, unit, x_label = "step";
  bool from_zero = false;
  bool may_be_logarithmic = false;
  bool accuracy = false;       // in percent
  double steps_per_epoch = 0;  // above 0: a second row of labels counts epochs
};
// "" when no line has a value.
std::string plot(const PlotText&, const std::vector<Line>&);

// The parts of a total, stacked on each other. Value i covers the range from begin[i] to end[i].
struct StackedSeries {
  std::string name, css;  // css: the class that sets its color
  std::vector<double> values;
};
std::string stacked_areas(const PlotText&, const std::vector<double>& begin, const std::vector<double>& end,
                          const std::vector<StackedSeries>&);

}  // namespace millrace::report
