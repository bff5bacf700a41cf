#include "train/logging/evaluation_file.hpp"

#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/version.hpp"
#include "millrace/telemetry/json_text.hpp"

namespace millrace {
namespace {

using nlohmann::json;

json table_of_classes(const Evaluation& e) {
  json out = json::array();
  for (std::size_t i = 0; i < e.classes.size(); ++i) {
    const ClassCounts& c = e.classes[i];
    out.push_back({{"labels", c.labels},
                   {"predictions", c.predictions},
                   {"precision", c.precision()},
                   {"recall", c.recall()},
                   {"f1", c.f1()},
                   {"iou", c.iou()}});
    if (i < e.class_names.size()) out.back()["name"] = e.class_names[i];
  }
  return out;
}

json to_json(const ClassAverages& a) { return {{"precision", a.precision}, {"recall", a.recall}, {"f1", a.f1}}; }

json to_json(const std::vector<RegressionErrors>& outputs) {
  json out = json::array();
  for (const RegressionErrors& o : outputs) out.push_back({{"mae", o.mae}, {"rmse", o.rmse}, {"r2", o.r2}});
  return out;
}

}  // namespace

void put_evaluation(json& out, const std::string& prefix, const Evaluation& e) {
  out[prefix + "loss"] = e.loss;
  out[prefix + "accuracy"] = e.labels ? json(e.top1) : json();
  out[prefix + "top5"] = e.labels ? json(e.top5) : json();
  for (const auto& [metric, value] : e.metrics) out[prefix + traits_of(metric).name] = value;
  for (const auto& [name, value] : e.values_of_losses()) out[prefix + name] = value;
  if (!e.outputs.empty()) out[prefix + "outputs"] = to_json(e.outputs);
  for (const LossEvaluation& loss : e.losses)
    if (!loss.outputs.empty()) out[prefix + "outputs." + loss.name] = to_json(loss.outputs);
  if (e.classes.empty()) return;
  out[prefix + "classes"] = table_of_classes(e);
  out[prefix + "macro_average"] = to_json(macro_average(e.classes));
  out[prefix + "weighted_average"] = to_json(weighted_average(e.classes));
  if (e.confusion.empty()) return;
  const std::size_t width = e.confusion.size() / e.classes.size();
  json& rows = out[prefix + "confusion"];
  for (std::size_t i = 0; i < e.confusion.size(); ++i) {
    if (i % width == 0) rows.push_back(json::array());
    rows.back().push_back(std::int64_t(e.confusion[i]));
  }
}

bool is_evaluation_file(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  const json there = json::parse(read_file(path), nullptr, false);
  return there.is_object() && there.contains("format") && there["format"] == evaluation_format;
}

void check_evaluation_path(const std::filesystem::path& path) {
  std::error_code none;
  const std::filesystem::path folder = path.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, none))
    fail(Exit::data, "there is no folder {} for {}. create it", folder.string(), path.string());
  if (std::filesystem::exists(path, none) && !is_evaluation_file(path))
    fail(Exit::data,
         "{} exists and was not written by millrace eval. name another file with --output, or remove this one",
         path.string());
}

void write_evaluation(const std::filesystem::path& path, const EvaluatedData& data, const Evaluation& e) {
  json out{{"format", evaluation_format},
           {"millrace_version", version},
           {"step", data.step},
           {"checkpoint", data.checkpoint},
           {"split", data.split.empty() ? json() : json(data.split)},
           {"files", data.files},
           {"rows", e.rows},
           {"unread_samples", e.unread}};
  put_evaluation(out, "", e);
  check_evaluation_path(path);
  write_file_atomically(path, json_text(out, 2) + "\n");
}

}  // namespace millrace
