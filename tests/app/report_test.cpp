// The parts of a report: reading metrics into curves, plots, and numbers as HTML.
#include "millrace/report/report.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <regex>

#include "millrace/base/error.hpp"
#include "millrace/runs/curves.hpp"
#include "millrace/runs/run_folder.hpp"
#include "report/html.hpp"
#include "report/plot.hpp"
#include "runs/json_lines.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace::report {
namespace report_test {

struct File {
  std::filesystem::path path;
  explicit File(const std::string& text) {
    static int number = 0;
    path = std::filesystem::temp_directory_path() / fmt::format("millrace_report_{}_{}", ::getpid(), number++);
    std::ofstream(path, std::ios::binary) << text;
  }
  ~File() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

std::string line(std::int64_t step, double loss) {
  return fmt::format("{{\"step\":{},\"epoch\":0,\"samples\":{},\"loss\":{},\"skipped\":false,\"forward_ms\":2.5}}\n",
                     (long long)step, (long long)(8 * step), std::isfinite(loss) ? std::to_string(loss) : "null");
}

TEST(Report, TextFromFilesIsEscaped) {
  EXPECT_EQ(escaped("<b a=\"1\" c='2'>&\x01"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp; ");
}

TEST(Report, NumbersHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(number(0), "0");
  EXPECT_EQ(number(0.012345), "0.0123");
  EXPECT_EQ(number(1.5), "1.50");
  EXPECT_EQ(number(-271.8), "−272");
  EXPECT_EQ(number(9876), "9876");
  EXPECT_EQ(number(25557032), "25.6 M");
  EXPECT_EQ(number(999960), "1.00 M");
  EXPECT_EQ(number(1e-5), "1.00·10<sup>−5</sup>");
  EXPECT_EQ(number(NAN), "–");
  EXPECT_EQ(fixed(-0.004, 2), "0.00");
  EXPECT_EQ(integer_text(9876), "9876");
  EXPECT_EQ(integer_text(1234567), "1\u202f234\u202f567");
  EXPECT_EQ(bytes_text(304), "304 B");
  EXPECT_EQ(bytes_text(25557032), "25.6 MB");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(7500), "2 h 05 min");
}

TEST(Report, AxesHaveRoundTicksInside) {
  EXPECT_EQ(linear_axis(0, 9.3, 5).ticks, (std::vector<double>{0, 2, 4, 6, 8}));
  for (const Axis& axis : {linear_axis(-0.013, 0.02, 5), linear_axis(7, 7, 5), linear_axis(0, 0, 4),
                           linear_axis(1e6, 1.00001e6, 6), logarithmic_axis(0.003, 4), logarithmic_axis(1e-9, 1e9)}) {
    ASSERT_GE(axis.ticks.size(), 2u);
    EXPECT_LE(axis.ticks.size(), 12u);
    for (std::size_t i = 0; i < axis.ticks.size(); ++i) {
      EXPECT_GE(axis.place(axis.ticks[i]), -1e-3);
      EXPECT_LE(axis.place(axis.ticks[i]), 1 + 1e-3);
      if (i == 0) continue;
      EXPECT_NE(tick_text(axis, axis.ticks[i]), tick_text(axis, axis.ticks[i - 1])) << axis.ticks[i];
    }
  }
}

// The position of a label by the style sheet: "first" begins at its tick, "last" ends there, and others are centered.
TEST(Report, AxisLabelsDoNotOverlapOnAPhone) {
  const std::regex label("<span class=\"x( first| last)?\" style=\"left:([0-9.]+)%\">([^<]*)</span>");
  std::mt19937 draw(5);
  for (int i = 0; i < 3000; ++i) {
    const double high = std::exp(std::uniform_real_distribution(-4.0, 18.0)(draw));
    const double low = i % 3 == 0 ? 1 : i % 3 == 1 ? 0 : high * std::uniform_real_distribution(0.0, 0.999)(draw);
    const Axis axis = x_axis(low, high, i % 2 ? 5 : 6);
    const std::string html = x_axis_labels(axis);
    double before = -100;
    std::size_t count = 0;
    for (std::sregex_iterator at(html.begin(), html.end(), label), end; at != end; ++at, ++count) {
      const std::string edge = (*at)[1], text = (*at)[3];
      const double length = double(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
      const double left = min_width_chars * std::stod((*at)[2]) / 100 - length * (edge == " first"  ? 0
                                                                                  : edge == " last" ? 1
                                                                                                    : 0.5);
      EXPECT_GE(left, before + 0.9) << low << " to " << high << ": " << html;
      EXPECT_LE(left + length, min_width_chars + 1.1) << html;
      before = left + length;
    }
    EXPECT_GE(count, 1u) << low << " to " << high;
    EXPECT_EQ(count, axis.ticks.size()) << html;
  }
}

TEST(Report, AccuraciesNearAHundredPercentHavePlacesOfTheirOwn) {
  const Axis axis = accuracy_axis(10, 99.6);
  EXPECT_NEAR(axis.place(10), 0, 1e-12);
  EXPECT_NEAR(axis.place(99.6), 1, 1e-12);
  EXPECT_GT(axis.place(99) - axis.place(98), 0.1);
  EXPECT_GT(axis.place(100), 1) << "beyond the plot, but finite";
  Line line{"top-1", 1, {1, 2, 3}, {}, true};
  line.curve.mid = {12, 98, 99};
  PlotText text{"Accuracy", "%", "step"};
  text.accuracy = true;
  const std::string near_100 = plot(text, {line});
  EXPECT_NE(near_100.find(">98</span>"), near_100.npos) << near_100;
  EXPECT_NE(near_100.find("logarithmic in the error"), near_100.npos);
  line.curve.mid = {12, 40, 100};
  EXPECT_EQ(plot(text, {line}).find("nan"), std::string::npos);
  line.curve.mid = {12, 40, 50};
  EXPECT_EQ(plot(text, {line}).find("logarithmic"), std::string::npos);
}

TEST(Report, ASmoothedCurveKeepsItsLevelItsGapsAndItsBeginning) {
  std::vector<double> values(100, 5.0);
  values[50] = NAN;
  const std::vector<double> level = smoothed(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i == 50)
      EXPECT_TRUE(std::isnan(level[i]));
    else
      EXPECT_NEAR(level[i], 5, 1e-12) << i;
  }
  std::mt19937 draw(3);
  double noise = 0, rest = 0;
  for (double& v : values) v = std::normal_distribution(0.0, 1.0)(draw);
  values[0] = 9;
  const std::vector<double> calm = smoothed(values);
  EXPECT_EQ(calm[0], 9) << "a steep beginning is not flattened";
  for (std::size_t i = 10; i < 90; ++i) {
    noise += values[i] * values[i];
    rest += calm[i] * calm[i];
  }
  EXPECT_LT(rest, 0.5 * noise);
  Line line{"loss", 0, {}, {values, values, values, values}, false};
  for (std::size_t i = 0; i < values.size(); ++i) line.x.push_back(double(i));
  line.smooth = true;
  const std::string svg = plot({"Loss", "", "step"}, {line});
  EXPECT_NE(svg.find("line c0 raw"), svg.npos);
  EXPECT_NE(svg.find("line: smoothed"), svg.npos);
}

TEST(Report, EpochsAreCountedBelowTheSteps) {
  Line line{"loss", 0, {1, 1000}, {}, false};
  line.curve = {{1, 1}, {1, 1}, {1, 1}, {1, 1}};
  PlotText text{"Loss", "", "step"};
  EXPECT_EQ(plot(text, {line}).find("epoch"), std::string::npos);
  text.steps_per_epoch = 100;
  const std::string svg = plot(text, {line});
  EXPECT_NE(svg.find("class=\"e last\" style=\"left:100.00%\">10<"), svg.npos) << svg;
}

TEST(Report, AThinnedCurveKeepsMinimumMedianAndMaximum) {
  std::string text;
  for (int step = 1; step <= 10000; ++step) text += line(step, step % 100 == 50 ? 1000 : step % 100);
  const File file(text + "{\"step\":10001,\"loss\":1");  // a killed writer left an incomplete line
  const Curves c = read_curves(file.path, 100);
  EXPECT_EQ(c.first, 1);
  EXPECT_EQ(c.last, 10000);
  EXPECT_EQ(c.width, 100);
  ASSERT_EQ(c.bins(), 100u);
  for (std::size_t b = 0; b < c.bins(); ++b) {
    EXPECT_EQ(c.loss.low[b], 0);
    EXPECT_EQ(c.loss.high[b], 1000);
    EXPECT_NEAR(c.loss.mid[b], 50, 1);
    EXPECT_EQ(c.phase_ms[std::size_t(Phase::forward)].mean[b], 2.5);
  }
  EXPECT_EQ(c.samples, 80000);
  EXPECT_EQ(c.begin(0), 0.5);
  EXPECT_EQ(c.end(99), 10000.5);
}

TEST(Report, TheMedianOfALongBinComesFromAnEvenSample) {
  BinSampler sample;
  Curve out;
  for (int i = 0; i < 1'000'000; ++i) sample.add(i);
  sample.flush(out);
  EXPECT_EQ(out.low[0], 0);
  EXPECT_EQ(out.high[0], 999'999);
  EXPECT_NEAR(out.mid[0], 500'000, 5'000);
  EXPECT_NEAR(out.mean[0], 499'999.5, 1e-6);
  sample.flush(out);
  EXPECT_TRUE(std::isnan(out.mid[1]));
}

TEST(Report, LossesThatAreNotFiniteLeaveAGap) {
  std::string text;
  for (int step = 1; step <= 9; ++step) text += line(step, step == 5 ? NAN : step);
  const File file(text);
  const Curves c = read_curves(file.path, 9);
  Line one{"loss", 0, {}, c.loss, false};
  for (std::size_t b = 0; b < c.bins(); ++b) one.x.push_back(c.middle(b));
  const std::string svg = plot({"Loss", "", "step", false, true}, {one});
  const auto begin = svg.find("d=\"", svg.find("class=\"line")) + 3;
  const std::string path = svg.substr(begin, svg.find('"', begin) - begin);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2) << path;
  EXPECT_EQ(svg.find("nan"), svg.npos);
}

TEST(Report, TheErrorNamesTheDamagedLine) {
  const File bad(line(1, 2) + "{\"step\":2,oops\n" + line(3, 2));
  EXPECT_NE(test::message_of([&] { read_curves(bad.path); }).find(":2: this is not the line of a step"),
            std::string::npos);
  const File back(line(1, 2) + line(2, 2) + line(2, 2));
  EXPECT_NE(test::message_of([&] { read_curves(back.path); }).find(":3: its step is not above"), std::string::npos);
  const File none("");
  EXPECT_EQ(read_curves(none.path).bins(), 0u);
}

TEST(Report, StackedAreasAddUp) {
  const std::vector<double> begin{0.5, 1.5}, end{1.5, 2.5};
  const std::string svg =
      stacked_areas({"t", "ms", "step", true, false}, begin, end, {{"a", "p-a", {1, 3}}, {"b", "p-b", {3, 1}}});
  EXPECT_NE(svg.find("a <b>2.00</b> <small>50.0 %"), svg.npos) << svg;
  // Both columns have the height 4, so the top of the upper layer is a straight line.
  const auto top = svg.find("d=\"", svg.find("fill p-b")) + 3;
  const std::string path = svg.substr(top, svg.find('"', top) - top);
  const std::string height = path.substr(path.find(' ') + 1, path.find('L') - path.find(' ') - 1);
  std::size_t same = 0;
  for (std::size_t at = path.find(' ' + height); at != path.npos; at = path.find(' ' + height, at + 1)) ++same;
  EXPECT_EQ(same, 4u) << path;
}

TEST(Report, ASummaryOfAnEarlierLaunchIsOutdated) {
  const test::TemporaryFolder folder;
  const auto outdated = [&](const std::string& run, const std::string& summary) {
    std::ofstream(folder / "run.json") << "{\"resolved\":{\"steps\":42}," << run << "}";
    std::ofstream(folder / "summary.json") << "{" << summary << "}";
    return RunFolder(folder.path).summary_is_outdated();
  };
  const std::string now = R"("started":"2026-03-01T10:00:00Z","pid":7,"resumed_at_step":)";
  const std::string of_now = R"("started":"2026-03-01T10:00:00Z","pid":7,"status":"finished","steps":42)";
  const std::string of_then = R"("started":"2026-03-01T09:00:00Z","pid":7,"status":"finished","steps":)";
  EXPECT_FALSE(outdated(now + "0", of_now));
  EXPECT_TRUE(outdated(now + "0", of_then + "42"));
  EXPECT_TRUE(outdated(now + "0", R"("started":"2026-03-01T10:00:00Z","pid":8,"status":"stopped","steps":9)"));
  EXPECT_FALSE(outdated(now + "42", of_then + "42")) << "the later launch had no steps left";
  EXPECT_TRUE(outdated(now + "30", of_then + "30")) << "the later launch was to train further";
  // A summary of an old version does not name its launch, so the times are compared.
  const std::string nameless = R"("status":"stopped","steps":9)";
  EXPECT_FALSE(outdated(now + "9", nameless));
  EXPECT_TRUE(outdated(R"("started":"2200-01-01T00:00:00Z","pid":7,"resumed_at_step":9)", nameless));
  // Damaged and missing files have their own error messages.
  EXPECT_FALSE(outdated(now, of_then + "42"));
  std::filesystem::remove(folder / "run.json");
  EXPECT_FALSE(RunFolder(folder.path).summary_is_outdated());
}

TEST(Report, TheKeysOfAConfigurationAreParsed) {
  const auto keys =
      parse_config_keys("# about\n[train]\nepochs = 3\n[model]\nlayers = conv 8\nlayers = relu\n[run]\ndir =\n");
  EXPECT_EQ(keys.at("train.epochs"), "3");
  EXPECT_EQ(keys.at("model.layers"), "conv 8\nrelu");
  EXPECT_EQ(keys.at("run.dir"), "");
  EXPECT_EQ(keys.size(), 3u);
}

}  // namespace report_test
}  // namespace millrace::report
