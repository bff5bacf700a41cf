// Pictures: from numbers to HTML with inline SVG. The SVG is stretched to the width that there is, labels are text
// beside it: so they keep their size on a phone and on paper.
#pragma once
#include <string>
#include <vector>

#include "millrace/runs/curves.hpp"

namespace millrace::report {

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<double> ticks;
  double place(double v) const;  // 0 at low, 1 at high; not clamped
};
// Round numbers about `count` of them, that lie within [low, high].
Axis linear_axis(double low, double high, int count);
Axis logarithmic_axis(double low, double high);  // both above 0
std::string tick_text(const Axis&, double tick);

// What a phone's width, 320 px, leaves a picture, in characters.
constexpr double min_width_chars = 26;
// Below a picture: as many of about `count` ticks as stand beside each other in `narrowest` characters.
Axis x_axis(double low, double high, int count);
std::string x_axis_labels(const Axis&);

// The value that a share of them lie below.
double quantile(std::vector<double>, double share);

struct Line {
  std::string name;
  int color = 0;          // of the runs' colours
  std::vector<double> x;  // ascending
  Curve curve;            // the band is drawn where low and high differ
  bool dots = false;      // single values: dots, joined by a thin line
  bool median = false;    // the legend has the median, not the last value
};
struct PlotText {
  std::string title, unit, x_label = "step";
  bool from_zero = false;
  bool may_be_logarithmic = false;
};
// "" where no line has a value.
std::string plot(const PlotText&, const std::vector<Line>&);

// Parts of a whole, one upon the other, by ranges of x.
struct StackedSeries {
  std::string name, css;  // css: class of its colour
  std::vector<double> values;
};
std::string stacked_areas(const PlotText&, const std::vector<double>& begin, const std::vector<double>& end,
                          const std::vector<StackedSeries>&);

}  // namespace millrace::report
