// The complete page: one run, or several side by side.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <set>

#include "millrace/base/error.hpp"
#include "millrace/report/report.hpp"
#include "report/html.hpp"
#include "report/plot.hpp"
#include "report/sections.hpp"

namespace millrace {
namespace report {
namespace {

constexpr int colors = 6;
using Runs = std::vector<Run>;

// With several runs each run has its color; with one run each curve has its own.
int color_of(const Runs& runs, std::size_t r, int curve_color) {
  return runs.size() == 1 ? curve_color : int(r) % colors;
}

std::string utc_now() {
  const std::time_t t = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&t));
  return text;
}

std::string state_html(const Run& run) {
  const State s = state_of(run);
  return fmt::format("<span class=\"state {}\">{}</span> <span class=\"quiet\">{}</span>", s.css, escaped(s.word),
                     escaped(s.detail));
}

std::string heading(const Runs& runs) {
  if (runs.size() > 1)
    return fmt::format("<header><h1>{} runs, side by side</h1><p class=\"quiet\">millrace report of {}</p></header>\n",
                       runs.size(), utc_now());
  const Run& run = runs.front();
  std::string tiles;
  const auto facts = run_facts(run);
  for (const auto& [name, value] : facts) tiles += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, value);
  // Two full rows on a wide screen, unless one row has room for all.
  const std::size_t columns = facts.size() > 6 ? (facts.size() + 1) / 2 : facts.size();
  return fmt::format(
      "<header><h1>{}</h1><p>{}</p><p class=\"quiet\">{}{}{} · report of {}</p></header>\n<dl "
      "class=\"tiles\" style=\"--columns:{}\">{}</dl>\n",
      escaped(run.name), state_html(run), escaped(run.record.device), run.record.started.empty() ? "" : " · started ",
      escaped(run.record.started), utc_now(), columns, tiles);
}

std::string key_of(const Runs& runs, std::size_t r) {
  return fmt::format("<i class=\"key c{}\"></i>{}", color_of(runs, r, 0), escaped(runs[r].name));
}

// A table with one column for each run and one row for each name. A dash stands for a value that a run lacks.
std::string columns(const Runs& runs, const std::vector<std::vector<std::pair<std::string, std::string>>>& values,
                    const char* css) {
  std::vector<std::string> names;
  for (const auto& of_run : values)
    for (const auto& [name, value] : of_run)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::string head = "<th></th>", rows;
  const auto label = [&](std::size_t r) { return escaped(runs[r].name); };
  for (std::size_t r = 0; r < runs.size(); ++r) head += fmt::format("<th>{}</th>", key_of(runs, r));
  for (const std::string& name : names) {
    rows += fmt::format("<tr><th>{}</th>", name);
    for (std::size_t r = 0; r < values.size(); ++r) {
      const auto& of_run = values[r];
      const auto at = std::find_if(of_run.begin(), of_run.end(), [&](const auto& v) { return v.first == name; });
      rows += fmt::format("<td data-label=\"{}\"><span>{}</span></td>", label(r),
                          at == of_run.end() ? std::string("–") : at->second);
    }
    rows += "</tr>";
  }
  return fmt::format(
      "<div class=\"scroll\"><table class=\"stack {}\"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>\n",
      css, head, rows);
}

std::string comparison(const Runs& runs) {
  if (runs.size() == 1) return "";
  std::vector<std::vector<std::pair<std::string, std::string>>> results, differing(runs.size());
  std::set<std::string> keys;
  for (const Run& run : runs) {
    const State s = state_of(run);
    results.push_back({{"state", fmt::format("<span class=\"state {}\">{}</span>", s.css, escaped(s.word))}});
    for (auto& result : run_facts(run)) results.back().push_back(result);
    for (const auto& [key, value] : run.keys) keys.insert(key);
  }
  for (const std::string& key : keys) {
    std::set<std::string> values;
    for (const Run& run : runs) values.insert(run.keys.count(key) ? run.keys.at(key) : "");
    if (values.size() == 1 || key == "run.dir") continue;
    for (std::size_t r = 0; r < runs.size(); ++r)
      differing[r].emplace_back(fmt::format("<code>{}</code>", escaped(key)),
                                runs[r].keys.count(key) ? escaped(runs[r].keys.at(key)) : "–");
  }
  std::string out = columns(runs, results, "figures");
  out += "<h2>Settings that differ</h2>";
  if (differing.front().empty())
    return out + "<p class=\"quiet\">None: the configurations differ only in the folder.</p>";
  return out + columns(runs, differing, "figures words");
}

Line line_of(const Runs& runs, std::size_t r, const Curve& curve, const char* name, int curve_color) {
  const Run& run = runs[r];
  Line line{runs.size() == 1 ? name : run.name, color_of(runs, r, curve_color), {}, curve, false};
  for (std::size_t i = 0; i < curve.mid.size(); ++i) line.x.push_back(run.curves.middle(i));
  return line;
}

Line dots_of(const Runs& runs, std::size_t r, double Validation::*value, const char* name, int curve_color,
             double factor) {
  Line line{runs.size() == 1 ? std::string(name) : fmt::format("{}, {}", runs[r].name, name),
            color_of(runs, r, curve_color),
            {},
            {},
            true};
  for (const Validation& v : runs[r].validations) {
    line.x.push_back(v.step);
    line.curve.mid.push_back(v.*value * factor);
  }
  return line;
}

// Whether any label is among the five most probable: top-5 would only stretch the axis.
bool five_classes_at_most(const Run& run) {
  return std::ranges::all_of(run.validations, [](const Validation& v) { return v.top5 >= 1; });
}

// The same for all runs and all their launches, else 0.
double steps_per_epoch(const Runs& runs) {
  const auto changes_epochs = [](const std::vector<std::string>& changed) {
    return std::any_of(changed.begin(), changed.end(), [](const std::string& key) {
      return key.starts_with("train.global_batch ") || key.starts_with("data.");
    });
  };
  for (const Run& run : runs) {
    const RunRecord& record = run.record;
    if (record.steps_per_epoch != runs.front().record.steps_per_epoch || changes_epochs(record.changed) ||
        std::any_of(record.earlier.begin(), record.earlier.end(),
                    [&](const EarlierStart& start) { return changes_epochs(start.changed); }))
      return 0;
  }
  return double(runs.front().record.steps_per_epoch);
}

std::string curves(const Runs& runs) {
  std::vector<Line> loss, accuracy, rate, lr, norm, scale;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Curves& c = runs[r].curves;
    loss.push_back(line_of(runs, r, c.loss, "training", 0));
    loss.back().smooth = true;
    loss.push_back(dots_of(runs, r, &Validation::loss, "validation", 1, 1));
    accuracy.push_back(dots_of(runs, r, &Validation::accuracy, "validation, top-1", 1, 100));
    if (runs.size() == 1 && !five_classes_at_most(runs[r]))
      accuracy.push_back(dots_of(runs, r, &Validation::top5, "validation, top-5", 2, 100));
    rate.push_back(line_of(runs, r, c.rate, "throughput", 2));
    rate.back().median = rate.back().smooth = true;
    lr.push_back(line_of(runs, r, c.lr, "learning rate", 3));
    norm.push_back(line_of(runs, r, c.grad_norm, "gradient norm", 3));
    norm.back().smooth = true;
    if (c.loss_scale.low != c.loss_scale.high || c.skipped > 0)
      scale.push_back(line_of(runs, r, c.loss_scale, "loss scale", 3));
  }
  const std::string width = runs.front().curves.width > 1
                                ? fmt::format("step, {} per point", (long long)runs.front().curves.width)
                                : std::string("step");
  const double epoch = steps_per_epoch(runs);
  return fmt::format(
      "<h2>Training</h2><div class=\"plots\">{}{}{}{}{}</div>\n<h2>Speed</h2><div class=\"plots\">{}",
      plot({"Loss", "loss per step", width, false, true, false, epoch}, loss),
      plot({"Accuracy", "% of data.valid", "step", false, false, true, epoch}, accuracy),
      plot({"Learning rate", "at each step", width, true, false, false, epoch}, lr),
      plot({"Gradient norm", "L2, before clipping", width, true, true, false, epoch}, norm),
      scale.empty() ? std::string() : plot({"Loss scale", "factor", width, false, true, false, epoch}, scale),
      plot({"Throughput", "samples/s, all ranks", width, true, false, false, epoch}, rate));
}

// The section for each run; with several runs, each under the name of its run.
template <class F>
std::string each(const Runs& runs, const F& section) {
  std::string out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::string one = section(runs[r]);
    if (one.empty()) continue;
    out += runs.size() == 1 ? one : fmt::format("<section><h3>{}</h3>{}</section>\n", key_of(runs, r), one);
  }
  return out;
}

std::string side_by_side(const Runs& runs, const std::string& title, const std::string& body) {
  if (body.empty()) return "";
  return fmt::format("{}<div class=\"{}\">{}</div>\n",
                     title.empty() ? std::string() : fmt::format("<h2>{}</h2>", title),
                     runs.size() == 1 ? "plots" : "side", body);
}

std::string body_of(const Runs& runs) {
  const auto parts = [](const Run& run) { return time_by_rank(run) + loader_of(run) + communication_of(run); };
  const bool one = runs.size() == 1;
  std::string out = heading(runs) + comparison(runs);
  out += side_by_side(runs, "Bottleneck, and what to change", each(runs, findings_of));
  if (std::all_of(runs.begin(), runs.end(), [](const Run& r) { return r.curves.bins() == 0; }))
    out += "<h2>Training</h2><p class=\"quiet\">No step has been written yet.</p>\n";
  else
    out += curves(runs) + (one ? time_over_steps(runs.front(), steps_per_epoch(runs)) : std::string()) + "</div>\n";
  out += side_by_side(runs, one ? "Evaluation" : "Evaluations", each(runs, evaluations_of));
  if (!one)
    out += side_by_side(runs, "Where the time went",
                        each(runs, [&](const Run& r) { return time_over_steps(r, steps_per_epoch(runs)) + parts(r); }));
  if (one) out += side_by_side(runs, "Where the time went", parts(runs.front()));
  out += side_by_side(runs, "Sampled steps", each(runs, timeline_of));
  out += side_by_side(runs, "On the device",
                      each(runs, [](const Run& r) { return layers_of(r) + light_of(r) + kernels_of(r); }));
  out += side_by_side(runs, one ? "The run" : "The runs", each(runs, settings_of));
  return out;
}

}  // namespace
}  // namespace report

const std::string_view page_beginning =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" content=\"millrace\">";

std::string report_page(const std::vector<std::filesystem::path>& folders) {
  report::Runs runs;
  for (const auto& folder : folders) runs.push_back(read_run(folder));
  for (Run& run : runs) {  // runs of the same name are distinguished by their folders
    const auto same = [&](const Run& other) {
      return &other != &run && other.folder.filename() == run.folder.filename();
    };
    if (std::any_of(runs.begin(), runs.end(), same)) run.name = run.folder.string();
  }
  const std::string title = runs.size() == 1 ? runs.front().name : fmt::format("{} runs", runs.size());
  return fmt::format(
      "{}<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><title>{} · "
      "millrace</title>\n<style>\n{}</style></head>\n<body><main>\n{}</main></body></html>\n",
      page_beginning, report::escaped(title), report::style(), report::body_of(runs));
}

}  // namespace millrace
