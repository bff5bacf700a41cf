#include "millrace/telemetry/exposition.hpp"

#include <gtest/gtest.h>

#include "support/exposition_reader.hpp"

namespace millrace {
namespace exposition_test {

using enum Exposition::Kind;

TEST(Exposition, FollowsTheFormat) {
  Exposition out({{"run", "a\\b \"c\"\nd"}, {"job_id", ""}});
  out.add("millrace_loss", gauge, "Of the last step.", std::nan(""));
  out.add("millrace_samples_total", counter, "Samples.", 123456789012345);
  out.add("millrace_phase_seconds_total", counter, "Time.", "phase", {{"forward", 0.1}, {"backward", INFINITY}});
  EXPECT_EQ(out.text(),
            "# HELP millrace_loss Of the last step.\n"
            "# TYPE millrace_loss gauge\n"
            "millrace_loss{run=\"a\\\\b \\\"c\\\"\\nd\"} NaN\n"
            "# HELP millrace_samples_total Samples.\n"
            "# TYPE millrace_samples_total counter\n"
            "millrace_samples_total{run=\"a\\\\b \\\"c\\\"\\nd\"} 123456789012345\n"
            "# HELP millrace_phase_seconds_total Time.\n"
            "# TYPE millrace_phase_seconds_total counter\n"
            "millrace_phase_seconds_total{run=\"a\\\\b \\\"c\\\"\\nd\",phase=\"forward\"} 0.1\n"
            "millrace_phase_seconds_total{run=\"a\\\\b \\\"c\\\"\\nd\",phase=\"backward\"} +Inf\n");
  const auto read = test::read_exposition(out.text());
  EXPECT_EQ(read.at("millrace_phase_seconds_total").at(1).labels.at("phase"), "backward");
  EXPECT_EQ(read.at("millrace_samples_total").at(0).value, 123456789012345);
}

TEST(Exposition, MetricsNeedNoLabels) {
  Exposition out({});
  out.add("millrace_step", gauge, "Steps.", 5);
  out.add("millrace_phase_seconds_total", counter, "Time.", "phase", {{"forward", 1e-7}});
  EXPECT_NE(out.text().find("\nmillrace_step 5\n"), std::string::npos);
  EXPECT_EQ(test::read_exposition(out.text()).at("millrace_phase_seconds_total").at(0).value, 1e-7);
}

// The reader that the tests use rejects what Prometheus rejects.
TEST(Exposition, TheTestReaderIsStrict) {
  const std::string head = "# HELP millrace_a A.\n# TYPE millrace_a gauge\n";
  EXPECT_EQ(test::read_exposition(head + "millrace_a{x=\"1\"} 2\n").at("millrace_a").at(0).value, 2);
  for (const std::string& text :
       {std::string(), head, head + "millrace_a 1", head + "millrace_a x\n", head + "millrace_b 1\n",
        head + "millrace_a 1\nmillrace_a 2\n", head + "millrace_a{} 1\n", head + "millrace_a{x=\"1\",} 1\n",
        head + "millrace_a{x=\"\"\"} 1\n", head + "millrace_a{job=\"1\"} 1\n", head + "millrace_a 1 1700000000\n",
        head + "\nmillrace_a 1\n", head + "millrace_a 1\n" + head,
        std::string("# HELP millrace_a A.\n# TYPE millrace_a counter\nmillrace_a 1\n"),
        std::string("# HELP millrace_a_total A.\n# TYPE millrace_a_total gauge\nmillrace_a_total 1\n"),
        std::string("# HELP millrace_a_ms A.\n# TYPE millrace_a_ms gauge\nmillrace_a_ms 1\n")})
    EXPECT_THROW(test::read_exposition(text), std::runtime_error) << text;
}

}  // namespace exposition_test
}  // namespace millrace
