// The tables of evaluations: metrics, classes, confusion matrix and outputs.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "report/html.hpp"
#include "report/sections.hpp"

namespace millrace::report {
namespace {

constexpr std::size_t max_table_rows = 50, max_matrix = 20;

std::string table(const std::string& caption, const std::string& head, const std::string& rows) {
  return fmt::format(
      "<figure><figcaption>{}</figcaption><div class=\"scroll\"><table "
      "class=\"stack\"><thead><tr>{}</tr></thead><tbody>{}</tbody>"
      "</table></div></figure>\n",
      caption, head, rows);
}

// On a narrow page, a row is a list of its cells with these labels.
std::string cell(const std::string& label, const std::string& value, const std::string& style = "") {
  return fmt::format("<td data-label=\"{}\"{}><span>{}</span></td>", label, style, value);
}

std::string optional_number(const std::optional<double>& value) { return value ? number(*value, 4) : "–"; }

// A note below a table that does not show all.
std::string note(std::size_t all, const char* what) {
  return all <= max_table_rows ? "" : fmt::format(", the first {} of {} {}", max_table_rows, all, what);
}

std::string metrics_of(const EvaluationRecord& e) {
  std::string rows;
  for (const auto& [name, value] : e.values)
    if (value)
      rows += fmt::format("<tr><th>{}</th>{}</tr>", escaped(name),
                          cell("value", name == "rows" ? integer_text(*value) : number(*value, 4)));
  return table(escaped(e.title), "<th>metric</th><th>value</th>", rows);
}

std::string classes_of(const EvaluationRecord& e) {
  std::string rows;
  for (std::size_t i = 0; i < std::min(max_table_rows, e.classes.size()); ++i) {
    const EvaluationRecord::Class& c = e.classes[i];
    rows += fmt::format("<tr><th>{}</th>{}{}{}{}{}</tr>", escaped(c.name), cell("labels", integer_text(c.labels)),
                        cell("predictions", integer_text(c.predictions)), cell("precision", fixed(c.precision, 4)),
                        cell("recall", fixed(c.recall, 4)), cell("F1", fixed(c.f1, 4)));
  }
  return table("Classes" + note(e.classes.size(), "classes"),
               "<th>class</th><th>labels</th><th>predictions</th><th>precision</th><th>recall</th><th>F1</th>", rows);
}

// A darker cell holds a larger share of its label.
std::string matrix_of(const EvaluationRecord& e) {
  if (e.confusion.empty() || e.confusion.size() > max_matrix || e.confusion.size() != e.confusion[0].size()) return "";
  // Of several binary labels, a row has the four counts of one label: of these no sum is the number of its labels.
  for (std::size_t i = 0; i < std::min(e.confusion.size(), e.classes.size()); ++i)
    if (std::accumulate(e.confusion[i].begin(), e.confusion[i].end(), 0.0) != double(e.classes[i].labels)) return "";
  std::string head = "<th>label \\ prediction</th>", rows;
  for (const EvaluationRecord::Class& c : e.classes) head += fmt::format("<th>{}</th>", escaped(c.name));
  for (std::size_t i = 0; i < e.confusion.size(); ++i) {
    double sum = 0;
    for (const double count : e.confusion[i]) sum += count;
    rows += fmt::format("<tr><th>{}</th>", i < e.classes.size() ? escaped(e.classes[i].name) : std::to_string(i));
    for (std::size_t k = 0; k < e.confusion[i].size(); ++k) {
      const double count = e.confusion[i][k];
      rows += cell(k < e.classes.size() ? escaped(e.classes[k].name) : std::to_string(k), integer_text(count),
                   fmt::format(" style=\"background:color-mix(in srgb,var(--accent) {}%,transparent)\"",
                               fixed(sum > 0 ? 60 * count / sum : 0, 0)));
    }
    rows += "</tr>";
  }
  return table("Confusion matrix", head, rows);
}

std::string outputs_of(const EvaluationRecord& e) {
  std::string rows;
  for (std::size_t i = 0; i < std::min(max_table_rows, e.outputs.size()); ++i) {
    const EvaluationRecord::Output& o = e.outputs[i];
    rows += fmt::format("<tr><th>{}</th>{}{}{}</tr>", escaped(o.name), cell("MAE", optional_number(o.mae)),
                        cell("RMSE", optional_number(o.rmse)), cell("R2", optional_number(o.r2)));
  }
  return table("Outputs" + note(e.outputs.size(), "outputs"), "<th>output</th><th>MAE</th><th>RMSE</th><th>R2</th>",
               rows);
}

}  // namespace

std::string evaluations_of(const Run& run) {
  std::string out;
  for (const EvaluationRecord& e : run.evaluations) {
    out += metrics_of(e);
    if (!e.classes.empty()) out += classes_of(e) + matrix_of(e);
    if (!e.outputs.empty()) out += outputs_of(e);
  }
  return out;
}

}  // namespace millrace::report
