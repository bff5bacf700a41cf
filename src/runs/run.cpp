#include "millrace/runs/run.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t most_trace = 64u << 20;  // bytes that a page looks at

// Reads a JSON file by `take`; whatever is wrong with its content becomes one line.
template <class F>
void read_json(const fs::path& path, const char* mend, const F& take) {
  const std::string text = read_file(path);
  try {
    take(json::parse(text));
  } catch (const std::exception& e) {
    std::string why = e.what();
    if (const auto end = why.find(']'); why.starts_with("[json") && end != why.npos) why = why.substr(end + 2);
    for (char& c : why)
      if (c == '\n') c = ' ';
    fail(Exit::data, path.string(), " is damaged, or of another version (", why.substr(0, 160), "). ", mend);
  }
}

std::string text_of(const json& j) { return j.is_string() ? j.get<std::string>() : j.dump(); }

std::optional<double> known(const json& j, const char* key) {
  const auto it = j.find(key);
  return it == j.end() || it->is_null() ? std::nullopt : std::optional<double>(it->get<double>());
}

std::string data_text(const json& d) {
  return cat(d.at("rows").get<long long>(), " samples of ", text_of(d.at("sample")), " ", text_of(d.at("dtype")),
             " in ", d.at("files").get<long long>(), d.at("files").get<long long>() == 1 ? " file" : " files");
}

void take_run_json(const json& j, Run& run) {
  run.started = text_of(j.at("started")), run.resumed_at = j.at("resumed_at_step");
  run.device = text_of(j.at("device")), run.collective = text_of(j.at("collective"));
  for (const json& r : j.at("ranks")) run.ranks.emplace_back(text_of(r.at("host")), text_of(r.at("placement")));
  const json& resolved = j.at("resolved");
  run.steps_wanted = resolved.at("steps");
  run.facts.emplace_back("training data", data_text(j.at("train")));
  if (!j.at("valid").is_null()) run.facts.emplace_back("validation data", data_text(j.at("valid")));
  for (const auto& [key, value] : resolved.items()) run.facts.emplace_back(key, text_of(value));
  for (const auto& [key, value] : j.at("libraries").items()) run.facts.emplace_back(key, text_of(value));
}

RunSummary ending_of(const json& j) {
  RunSummary e;
  e.status = text_of(j.at("status"));
  e.steps = j.at("steps"), e.epoch = j.at("epoch"), e.samples = j.at("samples");
  e.unread_samples = j.value("unread_samples", std::int64_t(0));
  e.samples_per_second = j.at("samples_per_second"), e.seconds = j.at("seconds");
  e.loss = known(j, "loss"), e.valid_loss = known(j, "valid_loss");
  e.valid_accuracy = known(j, "valid_accuracy"), e.valid_top5 = known(j, "valid_top5");
  e.verdict = j.value("verdict", "");
  for (const json& f : j.at("findings"))
    e.findings.push_back({f.at("gain"), f.at("at_most"), f.at("evidence"), f.at("advice"), f.at("caution")});
  for (const json& h : j.value("hints", json::array()))  // older versions wrote none
    e.hints.push_back({0, false, h.at("evidence"), h.at("advice"), h.at("caution")});
  for (const json& rank : j.at("account").at("ranks")) {
    json one;
    one["ranks"].push_back(rank);
    e.account.ranks.push_back(RankAccount::from_json(one.dump()));
  }
  return e;
}

// By the kernel's list: to try for the lock would hold up a training that starts at this moment.
bool locked(const fs::path& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return false;
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, " %02x:%02x:%llu ", major(s.st_dev), minor(s.st_dev),
                (unsigned long long)s.st_ino);
  std::ifstream in("/proc/locks");
  for (std::string line; std::getline(in, line);)
    if (line.find(wanted) != line.npos && line.find("FLOCK") != line.npos) return true;
  return false;
}

json object_of(const fs::path& path) {
  std::error_code none;
  json out = fs::exists(path, none) ? json::parse(read_file(path), nullptr, false) : json();
  return out.is_object() ? out : json::object();
}

std::int64_t count_of(const json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number_integer() ? it->get<std::int64_t>() : -1;
}

std::string word_of(const json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : "";
}

// By the start that run.json names, not by its file's time: a copied folder may have its files in any order.
bool written_before(const fs::path& path, const std::string& started) {
  struct stat s {};
  std::tm utc{};
  return ::strptime(started.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc) && ::stat(path.c_str(), &s) == 0 &&
         s.st_mtim.tv_sec < ::timegm(&utc);
}

void read_trace(Run& run) {
  const fs::path path = run.folder / "trace.json";
  std::error_code none;
  const auto bytes = fs::file_size(path, none);
  if (none || bytes == 0) return;
  if (bytes > most_trace) {
    run.trace_note = cat("trace.json is of ", (unsigned long long)(bytes >> 20), " MiB: see it in ui.perfetto.dev");
    return;
  }
  const std::string text = read_file(path);
  try {
    run.trace = trace_from_json(text);
  } catch (const std::exception&) {
    fail(Exit::data, path.string(), " is damaged. remove it: the page does without");
  }
}

}  // namespace

std::map<std::string, std::string> keys_of(const std::string& config) {
  std::map<std::string, std::string> out;
  std::istringstream in(config);
  std::string section;
  for (std::string line; std::getline(in, line);) {
    const auto begin = line.find_first_not_of(" \t"), equals = line.find('=');
    if (begin == line.npos || line[begin] == '#') continue;
    if (line[begin] == '[') {
      section = line.substr(begin + 1, line.find(']') - begin - 1);
      continue;
    }
    if (equals == line.npos || equals == begin) continue;
    const auto end = line.find_last_not_of(" \t", equals - 1), value = line.find_first_not_of(" \t", equals + 1);
    std::string& to = out[section + "." + line.substr(begin, end - begin + 1)];
    to += (to.empty() ? "" : "\n") + (value == line.npos ? std::string() : line.substr(value));
  }
  return out;
}

Run read_run(const fs::path& folder) {
  Run run;
  run.folder = folder;
  run.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  if (run.name.empty() || run.name == "." || run.name == "..")
    run.name = fs::weakly_canonical(folder).filename().string();
  std::error_code none;
  if (!fs::is_directory(folder, none)) fail(Exit::data, folder.string(), " is no folder. give run.dir of a training");
  for (const char* name : {"run.json", "config.cfg", "metrics.jsonl"})
    if (!fs::exists(folder / name, none))
      fail(Exit::data, (folder / name).string(), " is missing. give the folder of a run (run.dir of a training)");
  run.config = read_file(folder / "config.cfg");
  run.keys = keys_of(run.config);
  read_json(folder / "run.json", "a start of the training writes it anew",
            [&](const json& j) { take_run_json(j, run); });
  run.curves = read_curves(folder / "metrics.jsonl");
  if (fs::exists(folder / "validation.jsonl", none)) run.validations = read_validations(folder / "validation.jsonl");
  if (fs::exists(folder / "summary.json", none))
    read_json(folder / "summary.json", "remove it: the page then does without the account",
              [&](const json& j) { run.ending = ending_of(j); });
  if (fs::exists(folder / "layers.json", none))
    read_json(folder / "layers.json", "remove it: the page does without", [&](const json& j) {
      for (const json& op : j.at("operations"))
        run.operations.push_back(
            {op.at("name"), op.at("implementation"), op.at("forward_ms"), op.at("backward_ms"), op.at("least_ms")});
    });
  read_trace(run);
  run.going = locked(folder / "lock");
  run.outdated = run.ending && (run.going || run.ending->steps < run.curves.last || summary_is_outdated(folder));
  return run;
}

bool summary_is_outdated(const std::filesystem::path& folder) {
  const json run = object_of(folder / "run.json"), summary = object_of(folder / "summary.json");
  if (run.empty() || summary.empty()) return false;
  const std::string now = word_of(run, "started"), then = word_of(summary, "started");
  if (then.empty() ? !written_before(folder / "summary.json", now)
                   : then == now && count_of(summary, "pid") == count_of(run, "pid"))
    return false;
  const std::int64_t steps = count_of(summary, "steps");
  return word_of(summary, "status") != "finished" || steps != count_of(run, "resumed_at_step") ||
         steps < count_of(run.value("resolved", json::object()), "steps");
}

}  // namespace millrace
