// The account as JSON, and back. It is stored in this form, and ranks send their accounts in it.
#include <nlohmann/json.hpp>

#include "millrace/telemetry/json_text.hpp"
#include "telemetry/device_report.hpp"
#include "telemetry/spread.hpp"

namespace millrace {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepTimeStats, mean, p50, p90, p99, longest)
NLOHMANN_JSON_SERIALIZE_ENUM(CollectiveOp, {{CollectiveOp::all_reduce, "sum"},
                                            {CollectiveOp::reduce_scatter, "reduce_scatter"},
                                            {CollectiveOp::all_gather, "all_gather"}})
// Summaries of older versions lack op, ready and needed.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CollectiveOpStats, tag, times, bytes, queued, busy, exposed, op, ready,
                                                needed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ProcessStats, cpu_seconds, throttled_seconds, preempted, resident_bytes,
                                                shared_bytes, cores, cores_busy_seconds, stolen_seconds)
NLOHMANN_JSON_SERIALIZE_ENUM(NetworkLink::Kind, {{NetworkLink::Kind::interface, "interface"},
                                                 {NetworkLink::Kind::infiniband, "infiniband"},
                                                 {NetworkLink::Kind::nvlink, "nvlink"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NetworkLink, name, rate, kind)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LossScaleChange, step, scale)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimeBin, seconds, count)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReadyBytes, bytes, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StepTimingStats, steps, step, input, forward, backward, optimizer,
                                                last_backward, input_pass, sums, meeting, other, micro_batches, samples,
                                                stats_bytes, beside, meets, ready, own)

namespace {

using nlohmann::json;

constexpr std::size_t max_files = 8;  // files with faults that are listed for a rank

json to_json(const FaultStats& f) {
  json files = json::array();
  for (const FileFaults& one : f.files) {
    if (files.size() == max_files) break;
    files.push_back({{"path", one.path},
                     {"retries", one.retries},
                     {"skipped_samples", one.skipped_samples},
                     {"slow", one.slow},
                     {"error", one.error}});
  }
  return {{"retries", f.retries}, {"skipped_samples", f.skipped_samples}, {"files", files}};
}

FaultStats faults_from(const json& j) {
  FaultStats f;
  f.retries = j.at("retries");
  f.skipped_samples = j.at("skipped_samples");
  for (const auto& one : j.at("files"))
    f.files.push_back({one.at("path"), one.at("retries"), one.at("skipped_samples"), one.at("slow"), one.at("error")});
  return f;
}

json to_json(const LocalCacheStats& s) {
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

LocalCacheStats staging_from(const json& j) {
  LocalCacheStats s;
  s.files = j.at("files");
  s.files_staged = j.at("files_staged");
  s.bytes = j.at("bytes");
  s.bytes_staged = j.at("bytes_staged");
  s.bytes_copied = j.at("bytes_copied");
  s.bytes_reused = j.at("bytes_reused");
  s.samples = j.at("samples");
  s.samples_from_copies = j.at("samples_from_copies");
  s.stopped = j.at("stopped");
  return s;
}

json to_json(const LoaderStats& l) {
  return {{"workers", l.workers},
          {"batches", l.batches},
          {"samples", l.samples},
          {"bytes_read", l.bytes_read},
          {"chunks_decoded", l.decoded.chunks},
          {"decode_seconds", l.decoded.seconds},
          {"copy_seconds", l.copy_seconds},
          {"copied_bytes", l.copied_bytes},
          {"copied_samples", l.copied_samples},
          {"first_batch_seconds", l.first_batch_seconds},
          {"wait_seconds", l.wait_seconds},
          {"read_seconds", l.read_seconds},
          {"room_seconds", l.room_seconds},
          {"clock_reads", l.clock_reads},
          {"capacity", l.capacity()},
          {"mean_queue_depth", l.mean_depth()},
          {"queue_depths", l.queue_depths}};
}

LoaderStats loader_from(const json& j) {
  LoaderStats l;
  l.workers = j.at("workers");
  l.batches = j.at("batches");
  l.samples = j.at("samples");
  l.bytes_read = j.at("bytes_read");
  l.decoded = {j.at("chunks_decoded"), j.value("decode_seconds", 0.0)};
  l.copy_seconds = j.value("copy_seconds", 0.0);
  l.copied_bytes = j.value("copied_bytes", std::uint64_t(0));
  l.copied_samples = j.value("copied_samples", std::uint64_t(0));
  l.first_batch_seconds = j.at("first_batch_seconds");
  l.wait_seconds = j.at("wait_seconds");
  l.read_seconds = j.at("read_seconds");
  l.room_seconds = j.at("room_seconds");
  l.queue_depth_sum = std::uint64_t(j.at("mean_queue_depth").get<double>() * double(l.batches) + 0.5);
  l.queue_depths = j.at("queue_depths");
  l.clock_reads = j.value("clock_reads", std::uint64_t(0));
  return l;
}

json to_json(const Spread& s) {
  return {{"min", s.min}, {"median", s.median}, {"max", s.max}, {"min_rank", s.min_rank}, {"max_rank", s.max_rank}};
}

// Older versions wrote only the first scales and no count; there were at least as many changes.
LossScaleStats scales_from(const json& j) {
  std::vector<LossScaleChange> kept = j.at("loss_scales");
  const std::uint64_t min_changes = kept.empty() ? 0 : kept.size() - 1;
  return {std::move(kept), j.value("loss_scale_changes", min_changes)};
}

RankAccount rank_from(const json& j) {
  RankAccount r;
  r.host = j.at("host");
  r.wall_seconds = j.at("wall_seconds");
  r.comm_busy_seconds = j.at("communication_busy_seconds");
  r.comm_bytes = j.at("communication_bytes");
  r.steps = j.at("steps");
  r.samples = j.at("samples");
  r.memory_bytes = j.at("memory_bytes");
  r.loader = loader_from(j.at("loader"));
  r.step_times = j.at("step_times");
  r.sums = j.at("sums");
  r.process = j.at("process");
  r.cores = j.at("cores");
  r.threads = j.at("threads");
  r.checkpoints = j.at("checkpoints");
  r.evaluations = j.at("evaluations");
  r.needed_checkpoints = j.value("needed_checkpoints", 0);
  r.skipped_steps = j.at("skipped_steps");
  r.scales = scales_from(j);
  r.flops = j.at("step_flops");
  r.marks = j.at("marks_per_step");
  r.mark_seconds = j.at("mark_seconds");
  r.memory_limit = j.at("memory_limit");
  if (j.contains("way_out")) r.network_link = j.at("way_out");
  if (j.contains("pace")) r.pace = j.at("pace");
  if (j.contains("faults")) r.faults = faults_from(j.at("faults"));
  if (j.contains("staging")) r.staging = staging_from(j.at("staging"));
  if (j.contains("device")) r.device = device_time_from(j.at("device"));
  if (j.contains("health")) r.health = health_from(j.at("health"));
  for (int p = 0; p < phase_count; ++p) r.seconds[std::size_t(p)] = j.at("seconds").at(name_of(Phase(p)));
  return r;
}

json to_json(const RankAccount& r) {
  json one{{"host", r.host},
           {"wall_seconds", r.wall_seconds},
           {"communication_busy_seconds", r.comm_busy_seconds},
           {"communication_bytes", r.comm_bytes},
           {"steps", r.steps},
           {"samples", r.samples},
           {"memory_bytes", r.memory_bytes},
           {"memory_limit", r.memory_limit},
           {"cores", r.cores},
           {"threads", r.threads},
           {"step_times", r.step_times},
           {"step_flops", r.flops},
           {"loader", to_json(r.loader)},
           {"sums", r.sums},
           {"checkpoints", r.checkpoints},
           {"needed_checkpoints", r.needed_checkpoints},
           {"evaluations", r.evaluations},
           {"skipped_steps", r.skipped_steps},
           {"loss_scales", r.scales.kept()},
           {"loss_scale_changes", r.scales.changes()},
           {"loss_scale", r.scales.kept().empty() ? json() : json(r.scales.last())},
           {"process", r.process},
           {"marks_per_step", r.marks},
           {"mark_seconds", r.mark_seconds}};
  for (int p = 0; p < phase_count; ++p) one["seconds"][name_of(Phase(p))] = r.seconds[std::size_t(p)];
  if (r.network_link.rate > 0) one["way_out"] = r.network_link;
  if (r.pace.steps > 0) one["pace"] = r.pace;
  if (!r.faults.files.empty()) one["faults"] = to_json(r.faults);
  if (r.staging.files > 0) one["staging"] = to_json(r.staging);
  if (r.device.steps > 0) one["device"] = to_json(r.device);
  if (r.health.samples > 0) one["health"] = to_json(r.health);
  return one;
}

}  // namespace

RankAccount RankAccount::from_json(const std::string& text) { return rank_from(json::parse(text).at("ranks").at(0)); }

Account Account::from_json(const std::string& text) {
  const auto j = nlohmann::json::parse(text);
  Account out;
  for (const auto& rank : j.at("ranks")) out.ranks.push_back(rank_from(rank));
  return out;
}

std::string Account::json() const {
  nlohmann::json phases = nlohmann::json::object(), per_rank = nlohmann::json::array();
  for (int p = 0; p < phase_count; ++p)
    phases[name_of(Phase(p))] = to_json(spread(ranks, [p](const RankAccount& r) { return r.seconds[std::size_t(p)]; }));
  for (const RankAccount& r : ranks) per_rank.push_back(to_json(r));
  return json_text(
      nlohmann::json{{"wall_seconds", to_json(spread(ranks, [](const RankAccount& r) { return r.wall_seconds; }))},
                     {"phases", phases},
                     {"ranks", per_rank}});
}

}  // namespace millrace
