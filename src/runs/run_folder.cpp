#include "millrace/runs/run_folder.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "runs/parse_records.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// nlohmann's messages begin with "[json.exception...]" and may have several lines.
std::string short_reason(const std::exception& error) {
  std::string why = error.what();
  if (const auto end = why.find(']'); why.starts_with("[json") && end != why.npos) why = why.substr(end + 2);
  for (char& c : why)
    if (c == '\n') c = ' ';
  return why.substr(0, 160);
}

// Reads a JSON file with `parse`. Anything wrong with its content becomes one Error(data) that ends with `remedy`.
template <class F>
auto read_strictly(const fs::path& path, const char* remedy, const F& parse) {
  const std::string text = read_file(path);
  try {
    return parse(json::parse(text));
  } catch (const std::exception& error) {
    fail(Exit::data, "{} is damaged, or of another version ({}). {}", path.string(), short_reason(error), remedy);
  }
}

// The object in a JSON file; null when the file is missing, damaged, empty or not an object.
json read_leniently(const fs::path& path) {
  try {
    json out = file_exists(path) ? json::parse(read_file(path), nullptr, false) : json();
    return out.is_object() && !out.empty() ? out : json();
  } catch (const Error&) {  // removed since
    return {};
  }
}

// Compares with the time in run.json, not with that file's own time: a copied folder may have its files in any order.
bool written_before(const fs::path& path, const std::string& started) {
  struct stat s {};
  std::tm utc{};
  return ::strptime(started.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc) && ::stat(path.c_str(), &s) == 0 &&
         s.st_mtim.tv_sec < ::timegm(&utc);
}

}  // namespace

std::string RunFolder::name() const {
  std::string name = (path_.has_filename() ? path_ : path_.parent_path()).filename().string();
  if (name.empty() || name == "." || name == "..") name = fs::weakly_canonical(path_).filename().string();
  return name;
}

void RunFolder::require_run() const {
  std::error_code ignored;
  if (!fs::is_directory(path_, ignored)) fail(Exit::data, "{} is not a folder. give run.dir of a run", path_.string());
  for (const fs::path& file : {record_file(), config_file(), metrics_file()})
    if (!file_exists(file)) fail(Exit::data, "{} is missing. give the folder of a run (its run.dir)", file.string());
}

RunRecord RunFolder::record() const {
  return read_strictly(record_file(), "the next launch of the run writes it again",
                       [](const json& j) { return parse_record(j, FieldMode::strict); });
}

std::optional<RunSummary> RunFolder::summary() const {
  if (!file_exists(summary_file())) return std::nullopt;
  return read_strictly(summary_file(), "remove it: the page then has no account",
                       [](const json& j) { return parse_summary(j, FieldMode::strict); });
}

std::string RunFolder::config() const { return read_file(config_file()); }

std::vector<LayerTiming> RunFolder::layers() const {
  if (!file_exists(layers_file())) return {};
  return read_strictly(layers_file(), "remove it: the page then has no table of layers",
                       [](const json& j) { return parse_layers(j); });
}

std::vector<EvaluationRecord> RunFolder::evaluations() const {
  std::vector<EvaluationRecord> out;
  if (file_exists(summary_file())) {
    out.push_back(read_strictly(summary_file(), "remove it: the page then has no account",
                                [](const json& j) { return parse_evaluation(j, "valid_"); }));
    out.back().title = "Last validation of the training";
  }
  const json there = read_leniently(evaluation_file());
  const bool foreign = there.is_object() && !(there.contains("format") && there["format"] == evaluation_format);
  if (file_exists(evaluation_file()) && !foreign)
    out.push_back(
        read_strictly(evaluation_file(), "remove it: the page then has no such evaluation", [](const json& j) {
          EvaluationRecord one = parse_evaluation(j, "");
          one.title = fmt::format("millrace eval of step {}, {}", j.at("step").get<std::int64_t>(),
                                  j.at("split").is_null() ? "data.valid" : "the part " + j["split"].get<std::string>());
          std::erase_if(one.values, [](const auto& v) { return v.first == "step" || v.first == "unread_samples"; });
          return one;
        }));
  std::erase_if(out, [](const EvaluationRecord& e) {
    return std::none_of(e.values.begin(), e.values.end(), [](const auto& v) { return v.second.has_value(); });
  });
  return out;
}

std::uintmax_t RunFolder::trace_bytes() const {
  std::error_code missing;
  const std::uintmax_t bytes = fs::file_size(trace_file(), missing);
  return missing ? 0 : bytes;
}

std::vector<RankTrace> RunFolder::trace() const {
  if (trace_bytes() == 0) return {};
  const std::string text = read_file(trace_file());
  try {
    return trace_from_json(text);
  } catch (const std::exception&) {
    fail(Exit::data, "{} is damaged. remove it: the page then has no timeline", trace_file().string());
  }
}

std::optional<RunRecord> RunFolder::try_record() const {
  const json j = read_leniently(record_file());
  return j.is_null() ? std::nullopt : std::optional(parse_record(j, FieldMode::lenient));
}

std::optional<RunSummary> RunFolder::try_summary() const {
  const json j = read_leniently(summary_file());
  return j.is_null() ? std::nullopt : std::optional(parse_summary(j, FieldMode::lenient));
}

std::optional<std::int64_t> RunFolder::try_latest_checkpoint_step() const {
  long long step = -1;
  try {
    if (std::sscanf(read_file(latest_checkpoint_file()).c_str(), "step-%lld.h5", &step) == 1) return step;
  } catch (const Error&) {  // missing, or being replaced
  }
  return std::nullopt;
}

// Reads the kernel's list of locks. Trying to take the lock could fail a training that starts at this moment.
bool RunFolder::in_use() const {
  struct stat s {};
  if (::stat((path_ / "lock").c_str(), &s) != 0) return false;
  const std::string wanted = fmt::format(" {:02x}:{:02x}:{} ", major(s.st_dev), minor(s.st_dev), s.st_ino);
  std::ifstream in("/proc/locks");
  for (std::string line; std::getline(in, line);)
    if (line.find(wanted) != line.npos && line.find("FLOCK") != line.npos) return true;
  return false;
}

bool RunFolder::summary_is_outdated() const {
  const auto record = try_record();
  const auto summary = try_summary();
  if (!record || !summary) return false;
  const bool same_launch = summary->started == record->started && summary->pid == record->pid;
  if (summary->started.empty() ? !written_before(summary_file(), record->started) : same_launch) return false;
  return summary->status != "finished" || summary->steps != record->resumed_at_step ||
         summary->steps < record->planned_steps;
}

Account parse_account(const std::string& summary, const std::filesystem::path& file) {
  try {
    return Account::from_json(json::parse(summary).at("account").dump());
  } catch (const json::exception& error) {
    fail(Exit::data, "{}: this is not the summary of a run ({})", file.string(), error.what());
  }
}

std::map<std::string, std::string> parse_config_keys(const std::string& config) {
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
    std::string& joined = out[section + "." + line.substr(begin, end - begin + 1)];
    if (!joined.empty()) joined += '\n';
    if (value != line.npos) joined += line.substr(value);
  }
  return out;
}

std::optional<bool> process_exists(const RunRecord& record) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  if (record.pid <= 0 || record.ranks.empty() || record.ranks.front().first != host) return std::nullopt;
  return ::kill(record.pid, 0) == 0 || errno == EPERM;
}

}  // namespace millrace
