#include "train/logging/earlier_starts.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/runs/run_folder.hpp"

namespace millrace {
namespace {

// The keys with another value in the second configuration: "optim.lr 0.1 -> 0.05".
std::vector<std::string> changes_between(const std::string& before, const std::string& now) {
  const auto then = parse_config_keys(before);
  std::vector<std::string> out;
  for (const auto& [key, value] : parse_config_keys(now)) {
    const auto it = then.find(key);
    if (it == then.end() || it->second == value || key == "run.dir") continue;
    const auto shown = [](std::string text) {
      std::replace(text.begin(), text.end(), '\n', ';');
      return text.empty() ? std::string("empty") : text;
    };
    out.push_back(fmt::format("{} {} -> {}", key, shown(it->second), shown(value)));
  }
  return out;
}

nlohmann::json to_json(const EarlierStart& start) {
  return {{"started", start.started},
          {"resumed_at_step", start.resumed_at_step},
          {"seconds", start.seconds ? nlohmann::json(*start.seconds) : nlohmann::json()},
          {"changed", start.changed}};
}

}  // namespace

nlohmann::json earlier_starts(const std::filesystem::path& dir, std::int64_t resumed_at, const std::string& config) {
  nlohmann::json run{{"earlier", nlohmann::json::array()}, {"changed", nlohmann::json::array()}};
  const RunFolder folder(dir);
  const auto before = folder.try_record();
  std::error_code none;
  if (resumed_at == 0 || !before || !std::filesystem::exists(folder.config_file(), none)) return run;
  for (const EarlierStart& start : before->earlier) run["earlier"].push_back(to_json(start));
  EarlierStart last{before->started, before->resumed_at_step, std::nullopt, before->changed};
  const auto summary = folder.try_summary();
  if (summary && summary->started == before->started && summary->pid == before->pid) last.seconds = summary->seconds;
  if (last.seconds || !last.changed.empty() || last.resumed_at_step != resumed_at)
    run["earlier"].push_back(to_json(last));
  run["changed"] = changes_between(folder.config(), config);
  return run;
}

}  // namespace millrace
