// Draws a curve over a logarithmic x axis, as text for a terminal and as an SVG file. Pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace millrace::app {

struct Plot {
  std::string title, x_title, y_title;
  std::vector<double> x;             // above 0, ascending
  std::vector<double> single, line;  // values at each x: the single points, and the curve through them
  struct Mark {
    double x = 0;
    std::string label;
  };
  std::vector<Mark> marks;  // vertical lines with labels
  double top = 0;           // larger values are drawn at this height
};

std::string plot_text(const Plot&, int width = 72, int height = 16);
extern const std::string_view plot_beginning;  // of every file of plot_svg()
std::string plot_svg(const Plot&);             // a complete document, for light and dark backgrounds

}  // namespace millrace::app
