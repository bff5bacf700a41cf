// Exposition: figures in Prometheus' text format, version 0.0.4.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace millrace {

class Exposition {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;  // name, any text
  using Values = std::vector<std::pair<std::string, double>>;       // of a label, the figure
  enum class Kind { gauge, counter };

  explicit Exposition(const Labels&);  // that every figure carries; empty ones are left out
  // The names end as Prometheus' rules have it: a unit, and _total for counters alone. help: one line.
  void add(const std::string& name, Kind, const std::string& help, double value);
  void add(const std::string& name, Kind, const std::string& help, const std::string& label, const Values&);
  const std::string& text() const { return text_; }

 private:
  void begin(const std::string& name, Kind, const std::string& help);
  void sample(const std::string& name, const std::string& labels, double value);
  std::string labels_, text_;
};

}  // namespace millrace
