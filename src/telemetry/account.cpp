#include "millrace/telemetry/account.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "device_report.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

struct Spread {
  double least = 0, median = 0, most = 0;
};

template <class Get>
Spread spread(const std::vector<RankAccount>& ranks, Get get) {
  std::vector<double> values;
  for (const auto& r : ranks) values.push_back(get(r));
  std::sort(values.begin(), values.end());
  if (values.empty()) return {};
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

constexpr std::size_t most_files = 8;  // of a rank, in full

nlohmann::json to_json(const FaultFigures& f) {
  nlohmann::json files = nlohmann::json::array();
  for (const FileFaults& one : f.files) {
    if (files.size() == most_files) break;
    files.push_back({{"path", one.path},
                     {"retries", one.retries},
                     {"skipped_samples", one.skipped_samples},
                     {"slow", one.slow},
                     {"error", one.error}});
  }
  return {{"retries", f.retries}, {"skipped_samples", f.skipped_samples}, {"files", files}};
}

FaultFigures faults_from(const nlohmann::json& j) {
  FaultFigures f;
  f.retries = j.at("retries"), f.skipped_samples = j.at("skipped_samples");
  for (const auto& one : j.at("files"))
    f.files.push_back({one.at("path"), one.at("retries"), one.at("skipped_samples"), one.at("slow"), one.at("error")});
  return f;
}

std::string fault_lines(const std::vector<RankAccount>& ranks) {
  std::string out;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const FileFaults& f : ranks[r].faults.files)
      out += "  faults: rank " + std::to_string(r) + ", " + f.path + ": " + std::to_string(f.retries) +
             " reads tried again, " + std::to_string(f.skipped_samples) + " samples skipped" +
             (f.slow ? ", a slow read" : "") + (f.error.empty() ? "" : " (" + f.error + ")") + "\n";
  return out;
}

nlohmann::json to_json(const StagingFigures& s) {
  return {{"files", s.files},
          {"files_staged", s.files_staged},
          {"bytes", s.bytes},
          {"bytes_staged", s.bytes_staged},
          {"bytes_copied", s.bytes_copied},
          {"bytes_reused", s.bytes_reused},
          {"samples", s.samples},
          {"samples_from_copies", s.samples_from_copies},
          {"stopped", s.stopped}};
}

StagingFigures staging_from(const nlohmann::json& j) {
  StagingFigures s;
  s.files = j.at("files"), s.files_staged = j.at("files_staged");
  s.bytes = j.at("bytes"), s.bytes_staged = j.at("bytes_staged");
  s.bytes_copied = j.at("bytes_copied"), s.bytes_reused = j.at("bytes_reused");
  s.samples = j.at("samples"), s.samples_from_copies = j.at("samples_from_copies");
  s.stopped = j.at("stopped");
  return s;
}

// Of all ranks together: they share the copies of their nodes.
std::string staging_line(const std::vector<RankAccount>& ranks) {
  StagingFigures all;
  for (const RankAccount& r : ranks) {
    all.bytes_copied += r.staging.bytes_copied, all.bytes_reused += r.staging.bytes_reused;
    all.samples += r.staging.samples, all.samples_from_copies += r.staging.samples_from_copies;
    if (all.stopped.empty()) all.stopped = r.staging.stopped;
  }
  if (ranks.empty() || ranks[0].staging.files == 0) return "";
  char share[16];
  std::snprintf(share, sizeof share, "%.1f%%",
                all.samples > 0 ? 100 * double(all.samples_from_copies) / double(all.samples) : 0.0);
  return "  data.cache: " + format_bytes(all.bytes_copied) + " copied, " + format_bytes(all.bytes_reused) +
         " found from before; " + share + " of the samples were read from copies" +
         (all.stopped.empty() ? "" : "; not all are there: " + all.stopped) + "\n";
}

nlohmann::json to_json(const Spread& s) { return {{"min", s.least}, {"median", s.median}, {"max", s.most}}; }

}  // namespace

RankAccount RankAccount::from_json(const std::string& text) {
  const nlohmann::json j = nlohmann::json::parse(text).at("ranks").at(0);
  RankAccount r;
  r.host = j.at("host");
  r.wall_seconds = j.at("wall_seconds");
  r.comm_busy_seconds = j.at("communication_busy_seconds");
  r.comm_bytes = j.at("communication_bytes");
  r.steps = j.at("steps"), r.samples = j.at("samples"), r.memory_bytes = j.at("memory_bytes");
  const auto& loader = j.at("loader");
  r.loader.batches = loader.at("batches"), r.loader.bytes_read = loader.at("bytes_read");
  r.loader.chunks_decoded = loader.at("chunks_decoded");
  r.loader.wait_seconds = loader.at("wait_seconds"), r.loader.read_seconds = loader.at("read_seconds");
  r.loader.queue_depth_sum =
      std::uint64_t(loader.at("mean_queue_depth").get<double>() * double(r.loader.batches) + 0.5);
  if (j.contains("faults")) r.faults = faults_from(j.at("faults"));
  if (j.contains("staging")) r.staging = staging_from(j.at("staging"));
  if (j.contains("device")) r.device = device_time_from(j.at("device"));
  if (j.contains("health")) r.health = health_from(j.at("health"));
  for (int p = 0; p < phase_count; ++p) r.seconds[std::size_t(p)] = j.at("seconds").at(name_of(Phase(p)));
  return r;
}

std::string Account::table() const {
  const Spread wall = spread(ranks, [](const RankAccount& r) { return r.wall_seconds; });
  char line[160];
  std::snprintf(line, sizeof line, "where the time went: %.2f s on %zu rank%s\n  %-14s %9s %9s %9s %8s\n", wall.median,
                ranks.size(), ranks.size() == 1 ? "" : "s", "phase", "min s", "median s", "max s", "share");
  std::string out = line;
  for (int p = 0; p < phase_count; ++p) {
    const Spread s = spread(ranks, [p](const RankAccount& r) { return r.seconds[std::size_t(p)]; });
    std::snprintf(line, sizeof line, "  %-14s %9.3f %9.3f %9.3f %7.2f%%\n", name_of(Phase(p)), s.least, s.median,
                  s.most, wall.median > 0 ? 100 * s.median / wall.median : 0.0);
    out += line;
  }
  const Spread busy = spread(ranks, [](const RankAccount& r) { return r.comm_busy_seconds; });
  const Spread wait = spread(ranks, [](const RankAccount& r) { return r.loader.wait_seconds; });
  const Spread depth = spread(ranks, [](const RankAccount& r) {
    return r.loader.batches ? double(r.loader.queue_depth_sum) / double(r.loader.batches) : 0.0;
  });
  std::snprintf(line, sizeof line,
                "  sums between ranks were busy %.3f s (median), of which the step waited for what stands above\n",
                busy.median);
  out += line;
  std::snprintf(line, sizeof line, "  the loader had %.1f batches ready on average; the step waited %.3f s for it\n",
                depth.median, wait.median);
  return out + line + staging_line(ranks) + fault_lines(ranks) + device_lines(ranks);
}

std::string Account::json() const {
  nlohmann::json phases = nlohmann::json::object(), per_rank = nlohmann::json::array();
  for (int p = 0; p < phase_count; ++p)
    phases[name_of(Phase(p))] = to_json(spread(ranks, [p](const RankAccount& r) { return r.seconds[std::size_t(p)]; }));
  for (const RankAccount& r : ranks) {
    nlohmann::json one{
        {"host", r.host},
        {"wall_seconds", r.wall_seconds},
        {"communication_busy_seconds", r.comm_busy_seconds},
        {"communication_bytes", r.comm_bytes},
        {"steps", r.steps},
        {"samples", r.samples},
        {"memory_bytes", r.memory_bytes},
        {"loader",
         {{"batches", r.loader.batches},
          {"bytes_read", r.loader.bytes_read},
          {"chunks_decoded", r.loader.chunks_decoded},
          {"wait_seconds", r.loader.wait_seconds},
          {"read_seconds", r.loader.read_seconds},
          {"mean_queue_depth", r.loader.batches ? double(r.loader.queue_depth_sum) / double(r.loader.batches) : 0.0}}}};
    for (int p = 0; p < phase_count; ++p) one["seconds"][name_of(Phase(p))] = r.seconds[std::size_t(p)];
    if (!r.faults.files.empty()) one["faults"] = to_json(r.faults);
    if (r.staging.files > 0) one["staging"] = to_json(r.staging);
    if (r.device.steps > 0) one["device"] = to_json(r.device);
    if (r.health.samples > 0) one["health"] = to_json(r.health);
    per_rank.push_back(one);
  }
  return nlohmann::json{{"wall_seconds", to_json(spread(ranks, [](const RankAccount& r) { return r.wall_seconds; }))},
                        {"phases", phases},
                        {"ranks", per_rank}}
      .dump();
}

}  // namespace millrace
