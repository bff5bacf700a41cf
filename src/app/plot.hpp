// A curve over a logarithmic axis, as text for a terminal and as an SVG file: pure functions.
#pragma once
#include <string>
#include <vector>

namespace millrace::app {

struct Plot {
  std::string title, x_title, y_title;
  std::vector<double> x;             // above 0, ascending
  std::vector<double> single, line;  // at each x: points, and the curve through them
  struct Mark {
    double x = 0;
    std::string label;
  };
  std::vector<Mark> marks;  // upright lines
  double top = 0;           // values above are drawn at it
};

std::string plot_text(const Plot&, int width = 72, int height = 16);
std::string plot_svg(const Plot&);  // stands alone, readable in light and dark

}  // namespace millrace::app
