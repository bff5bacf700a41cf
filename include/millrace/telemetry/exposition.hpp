// Exposition: writes metrics in the text format of Prometheus, version 0.0.4.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace millrace {

class Exposition {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;  // name and value; a value may be any text
  using Values = std::vector<std::pair<std::string, double>>;       // label value and metric value
  enum class Kind { gauge, counter };

  // labels: carried by every metric; those with an empty value are left out.
  explicit Exposition(const Labels&);
  // A name ends with its unit; that of a counter ends with _total, as the rules of Prometheus demand. help: one line.
  void add(const std::string& name, Kind, const std::string& help, double value);
  // One metric with a value for each value of `label`.
  void add(const std::string& name, Kind, const std::string& help, const std::string& label, const Values&);
  const std::string& text() const { return text_; }

 private:
  void begin(const std::string& name, Kind, const std::string& help);
  void sample(const std::string& name, const std::string& labels, double value);
  std::string labels_, text_;
};

}  // namespace millrace
