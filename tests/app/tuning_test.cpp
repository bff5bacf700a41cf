// The output of tune: configuration lines and curves.
#include "millrace/advisor/trials/tuning.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "app/plot.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/config/options.hpp"

namespace millrace::app {
namespace tuning_test {

TEST(Tune, ASnippetOverridesTheConfigurationBeforeIt) {
  const Settings settings{{"data.reader", "uring"},       {"data.workers", "0"},         {"data.prefetch", "auto"},
                          {"comm.bucket_size", "256KiB"}, {"train.global_batch", "512"}, {"train.micro_batch", "64"},
                          {"model.fusion", "2"}};
  const std::string text =
      config_snippet(settings, {"optim.lr stays 0.1: the rule (Goyal et al. 2017) would make it 0.4"});
  const ConfigFile mine{"mine.cfg", "[data]\nworkers = 7\nreader = mmap\n[train]\nepochs = 3\n"};
  const RunConfig config = resolve_config({mine, {"tuned.cfg", text}}, {});
  EXPECT_EQ(config.train.epochs, 3);
  for (const auto& [name, value] : settings) {
    const Key* key = find_key(name);
    ASSERT_NE(key, nullptr) << name;
    EXPECT_EQ(join_words(*key, key->get(config)), value) << name;
  }
}

TEST(Tune, EverySearchedKeyExists) {
  for (const std::string& name : tuned_keys()) EXPECT_NE(find_key(name), nullptr) << name;
}

Plot valley() {
  Plot p{"a & b", "rate", "loss", {}, {}, {}, {{1e-2, "here <"}}, 5};
  for (int i = 0; i <= 40; ++i) {
    const double x = std::pow(10, -4 + 0.1 * i), d = std::log10(x) + 2;
    p.x.push_back(x);
    p.line.push_back(d * d);
    p.single.push_back(d * d + (i % 2 ? 0.1 : -0.1));
  }
  p.single.back() = 1000;
  return p;
}

TEST(Plot, TextShowsTheValleyWhereItIs) {
  std::istringstream in(plot_text(valley(), 41, 11));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 1u + 11 + 2 + 1);
  for (const auto& line : lines) EXPECT_LE(line.size(), 10u + 41 + 8 + 8) << line;
  EXPECT_EQ(lines[1].find('#'), std::string::npos) << "only single points reach the top";
  const std::string& bottom = lines[11];
  const auto first = bottom.find('#'), last = bottom.rfind('#');
  ASSERT_NE(first, bottom.npos);
  EXPECT_NEAR(double(first + last) / 2, 10 + 20, 1) << bottom;
  EXPECT_EQ(lines[13].find("1e-04"), 10u) << lines[13];
  EXPECT_NE(lines.back().find("here <"), std::string::npos);
  EXPECT_EQ(plot_text({}), "");
}

TEST(Plot, SvgIsCompleteAndContainsEveryPoint) {
  const std::string svg = plot_svg(valley());
  EXPECT_EQ(svg.find("<svg xmlns=\"http://www.w3.org/2000/svg\""), 0u);
  EXPECT_NE(svg.find("a &amp; b"), svg.npos);
  EXPECT_NE(svg.find("here &lt;"), svg.npos);
  EXPECT_EQ(svg.find("href"), svg.npos);
  std::size_t points = 0;
  for (std::size_t at = 0; (at = svg.find("cy=\"", at)) != svg.npos; ++points) {
    const double y = std::atof(svg.c_str() + (at += 4));
    EXPECT_TRUE(y >= 50 && y <= 370) << y;
  }
  EXPECT_EQ(points, 41u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace tuning_test
}  // namespace millrace::app
