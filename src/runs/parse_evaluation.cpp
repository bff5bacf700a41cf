#include <fmt/core.h>

#include "runs/parse_records.hpp"

namespace millrace {
namespace {

using nlohmann::json;

std::optional<double> number_of(const json& j) { return j.is_null() ? std::nullopt : std::optional(j.get<double>()); }

std::vector<EvaluationRecord::Class> classes_of(const json& table) {
  std::vector<EvaluationRecord::Class> out;
  for (const json& c : table)
    out.push_back({c.value("name", std::to_string(out.size())), c.at("labels"), c.at("predictions"), c.at("precision"),
                   c.at("recall"), c.at("f1"), c.at("iou")});
  return out;
}

void add_outputs(const json& table, const std::string& loss, std::vector<EvaluationRecord::Output>& out) {
  std::size_t number = 0;
  for (const json& o : table)
    out.push_back({fmt::format("{}{}", loss.empty() ? "" : loss + " ", number++), number_of(o.at("mae")),
                   number_of(o.at("rmse")), number_of(o.at("r2"))});
}

}  // namespace

EvaluationRecord parse_evaluation(const json& j, const std::string& prefix) {
  EvaluationRecord out;
  const std::string outputs = prefix + "outputs";
  for (const auto& [key, value] : j.items()) {
    if (!key.starts_with(prefix)) continue;
    if (key == outputs || key.starts_with(outputs + "."))
      add_outputs(value, key.size() > outputs.size() ? key.substr(outputs.size() + 1) : "", out.outputs);
    else if (value.is_number() || (value.is_null() && key != "split"))
      out.values.emplace_back(key.substr(prefix.size()), number_of(value));
  }
  if (const auto table = j.find(prefix + "classes"); table != j.end()) out.classes = classes_of(*table);
  if (const auto counts = j.find(prefix + "confusion"); counts != j.end())
    out.confusion = counts->get<std::vector<std::vector<double>>>();
  return out;
}

}  // namespace millrace
