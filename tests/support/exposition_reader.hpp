// A strict reader of the text format of Prometheus, for tests. It throws if the text violates the format or the naming
// rules of Prometheus.
#pragma once
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

namespace millrace::test {

struct Series {
  std::map<std::string, std::string> labels;
  double value = 0;
};

// Series by metric name, in the order of the file.
inline std::map<std::string, std::vector<Series>> read_exposition(const std::string& text) {
  static const std::regex help("# HELP ([a-z_]+) (\\S.*)"), type("# TYPE ([a-z_]+) (gauge|counter)"),
      sample("([a-z_]+)(\\{(.*)\\})? (\\S+)"), label("^([a-z_]+)=\"((?:[^\"\\\\]|\\\\[\\\\\"n])*)\"(,|$)"),
      number("NaN|[+-]Inf|-?[0-9]+(\\.[0-9]+)?(e[+-][0-9]+)?");
  const auto bad = [](const std::string& why, const std::string& line) { throw std::runtime_error(why + ": " + line); };
  std::map<std::string, std::vector<Series>> out;
  std::map<std::string, std::string> helps, types;
  std::set<std::string> seen;
  std::string family;
  if (text.empty() || text.back() != '\n') bad("the last line has no line break", text.substr(text.rfind('\n') + 1));
  std::istringstream in(text);
  std::smatch m;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, m, help)) {
      if (!helps.emplace(m[1], m[2]).second) bad("a duplicate HELP", line);
      family = m[1];
    } else if (std::regex_match(line, m, type)) {
      if (m[1] != family || !types.emplace(m[1], m[2]).second) bad("TYPE does not follow its HELP", line);
      const bool total = family.ends_with("_total");
      if (total != (m[2] == "counter")) bad("only counters end with _total", line);
      if (!family.starts_with("millrace_")) bad("the name does not begin with millrace_", line);
      for (const char* unit : {"_ms", "_milliseconds", "_percent", "_minutes", "_kb", "_gauge", "_counter"})
        if (family.find(unit) != family.npos)
          bad("the name contains its type, or a unit that is not a base unit", line);
    } else if (std::regex_match(line, m, sample)) {
      const std::string name = m[1], value = m[4];
      if (name != family || !types.count(name)) bad("a sample outside of its family", line);
      if (!std::regex_match(value, number)) bad("not a number", line);
      Series series;
      series.value = value == "NaN" ? std::nan("") : std::stod(value);
      if (types[name] == "counter" && !(series.value >= 0)) bad("a counter below 0", line);
      std::string labels = m[3];
      if (m[2].matched && labels.empty()) bad("empty braces", line);
      for (std::smatch l; !labels.empty(); labels = l.suffix()) {
        if (!std::regex_search(labels, l, label)) bad("not a label", line);
        if (!series.labels.emplace(l[1], l[2]).second) bad("a duplicate label", line);
        if (l[3] == "," && l.suffix().length() == 0) bad("no label after a comma", line);
        for (const char* reserved : {"job", "instance", "__name__"})
          if (l[1] == reserved) bad("a label that Prometheus sets itself", line);
      }
      if (!seen.insert(line.substr(0, line.rfind(' '))).second) bad("a duplicate series", line);
      out[name].push_back(series);
    } else {
      bad("unknown kind of line", line);
    }
  }
  for (const auto& [name, what] : types)
    if (!out.count(name)) bad("no sample of", name);
  return out;
}

}  // namespace millrace::test
