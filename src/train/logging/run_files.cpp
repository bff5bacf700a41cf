#include "train/logging/run_files.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/base/version.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/system/signals.hpp"
#include "millrace/telemetry/json_text.hpp"
#include "millrace/train/logging/rewrite_verdict.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/logging/earlier_starts.hpp"
#include "train/logging/evaluation_file.hpp"
#include "train/logging/light_json.hpp"

extern char** environ;

namespace millrace {
namespace {

using nlohmann::json;

json environment() {
  json out = json::object();
  for (char** e = environ; *e; ++e) {
    const std::string entry = *e;
    for (const char* prefix : {"SLURM_", "OMPI_MCA_", "OMP_", "NCCL_", "CUDA_", "GOMP_"})
      if (entry.rfind(prefix, 0) == 0) out[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
  }
  return out;
}

std::string utc_now() {
  const std::time_t t = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&t));
  return text;
}

// The values that the program chose, among them those for `auto`.
json resolved(const Session& s) {
  const Backend& backend = *s.compute.backend;
  return {{"global_batch", s.batching.global_batch},
          {"micro_batch", s.batching.micro_batch},
          {"accumulation", s.accumulation()},
          {"steps", s.total_steps()},
          {"steps_per_epoch", s.batching.epochs.steps_per_epoch()},
          {"threads", s.placement.compute_threads},
          {"workers", s.loader_options().workers},
          {"prefetch", s.config.data.prefetch ? json(s.config.data.prefetch) : json("auto")},
          {"fusion", s.spec.fusion < 0 ? json("auto") : json(std::min(s.spec.fusion, backend.max_fusion_level()))},
          {"reader", s.data.train_source->describe()}};
}

json data_json(const ShardIndex& data) {
  return {{"files", data.shards.size()},    {"rows", data.selected_rows()},  {"sample", data.sample.str()},
          {"dtype", name_of(data.x.dtype)}, {"classes", data.classes.count}, {"manifest_crc32", data.manifest_crc}};
}

// Why a run must not use the folder: another program wrote a file whose name a run uses. "" if it may.
std::string problem_using(const std::filesystem::path& dir) {
  constexpr std::uint64_t max_bytes = 64u << 20;
  std::error_code none;
  const std::filesystem::path record = dir / "run.json";
  if (std::filesystem::exists(dir / "lock", none)) return "";  // every run makes it first
  if (std::filesystem::is_regular_file(record, none) &&
      read_file(record, max_bytes).find("\"resumed_at_step\"") != std::string::npos)
    return "";  // a copy of a run
  for (const char* name : {"config.cfg", "run.json", "metrics.jsonl", "validation.jsonl", "shares.jsonl",
                           "summary.json", "trace.json", "layers.json"})
    if (std::filesystem::exists(dir / name, none))
      return fmt::format("run.dir: a run would replace {} (the folder is not of a run). set another run.dir",
                         (dir / name).string());
  return "";
}

// Whether this run now holds the lock of its folder. A Slurm job waits, because the job before it may still be ending:
// Slurm releases nodes up to a minute before the last process of a job is gone.
bool lock_file(int fd, const std::filesystem::path& dir) {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + (std::getenv("SLURM_JOB_ID") ? 120s : 0s);
  for (bool told = false; ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; told = true) {
    if (stop_signal() || std::chrono::steady_clock::now() >= end) return false;
    if (!told) log::info(fmt::format("run.dir: {} is in use by another run. waiting up to 2 minutes", dir.string()));
    std::this_thread::sleep_for(200ms);
    watchdog::beat();  // the other ranks may wait longer than comm.timeout
  }
  return true;
}

}  // namespace

RunFolderLock::RunFolderLock(World& world, const std::filesystem::path& dir) : world_(world), dir_(dir) {
  world.agree(Exit::config, world.rank() == 0 ? lock(0) : "");
}

std::string RunFolderLock::lock(int flags) {
  const watchdog::WaitScope waits(watchdog::Wait::file);
  if (lock_ >= 0) return "";
  lock_ = ::open((dir_ / "lock").c_str(), O_RDWR | O_CLOEXEC | flags, 0666);
  if (lock_ < 0 || lock_file(lock_, dir_)) return "";
  ::close(std::exchange(lock_, -1));
  return fmt::format("run.dir: {} is in use by another run. wait for it, or set another run.dir", dir_.string());
}

void RunFolderLock::create() {
  std::string problem;
  Exit code = Exit::config;
  std::error_code error, ignored;
  if (world_.rank() == 0) {
    const watchdog::WaitScope waits(watchdog::Wait::file);
    problem = problem_using(dir_);
    if (problem.empty()) std::filesystem::create_directories(dir_ / "checkpoints", error);
    if (error) {
      problem = fmt::format("run.dir: cannot create {} ({})", (dir_ / "checkpoints").string(), error.message());
      code = Exit::data;
    }
    if (problem.empty()) problem = lock(O_CREAT);
  }
  world_.agree(code, problem);
  if (world_.rank() != 0) return;
  std::filesystem::remove(dir_ / "STOP", ignored);  // the stop request of the previous launch
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "checkpoints", ignored))
    if (entry.path().extension() == ".tmp") std::filesystem::remove(entry.path(), ignored);  // a killed writer left it
}

RunFolderLock::~RunFolderLock() {
  if (lock_ >= 0) ::close(lock_);
}

void remove_old_run(const std::filesystem::path& dir) {
  std::error_code ignored;
  if (is_evaluation_file(dir / evaluation_file_name)) std::filesystem::remove(dir / evaluation_file_name, ignored);
  for (const char* file : {"summary.json", "trace.json", "shares.jsonl", "layers.json"})
    std::filesystem::remove(dir / file, ignored);
  for (const auto& entry : std::filesystem::directory_iterator(dir / "tensorboard", ignored))
    if (entry.path().filename().string().starts_with("events.")) std::filesystem::remove(entry.path(), ignored);
  for (const auto& path : CheckpointStore::list(dir / "checkpoints")) std::filesystem::remove(path, ignored);
  for (const char* note : {"best", "latest"}) std::filesystem::remove(dir / "checkpoints" / note, ignored);
}

std::string describe_run(const Session& s, const Network& network) {
  const std::string& why = s.compute.fallback_reason;
  return fmt::format("training {} ({} parameters) on {} samples, {}{}{} threads per rank, {}, {}{}, {}{}",
                     value_text(s.config, "model.name"), format_count(double(network.graph().parameter_count())),
                     s.data.train.selected_rows(), s.world.size(), s.world.size() == 1 ? " rank, " : " ranks, ",
                     s.placement.compute_threads, name_of(s.spec.compute), s.compute.device->name(),
                     why.empty() ? "" : " (" + why + ")", s.compute.collective->describe(),
                     s.spec.buckets.sharded() ? ", optimizer sharded" : "");
}

Launch write_run_json(Session& s, const std::filesystem::path& dir, std::int64_t resumed_at,
                      const SpeedOfLight& light) {
  const auto hosts = s.world.gather_to_root(s.world.host());
  const auto places = s.world.gather_to_root(s.placement.str());
  const auto readers = s.world.gather_to_root(s.data.train_source->describe());  // `auto` may differ between hosts
  if (s.world.rank() != 0) return {};
  const Launch launch{utc_now(), ::getpid()};
  json ranks = json::array();
  for (std::size_t r = 0; r < hosts.size(); ++r)
    ranks.push_back({{"host", hosts[r]}, {"placement", places[r]}, {"reader", readers[r]}});
  json run{{"version", version},
           {"started", launch.time},
           {"resumed_at_step", resumed_at},
           {"pid", launch.pid},
           {"ranks", ranks},
           {"device", s.compute.device->describe()},
           {"collective", s.compute.collective->describe()},
           {"libraries", {{"mpi", mpi_library_version()}, {"hdf5", io::library_version()}}},
           {"compiler", __VERSION__},
           {"provenance", s.provenance()},
           {"resolved", resolved(s)},
           {"speed_of_light", light_record(light)},
           {"train", data_json(s.data.train)},
           {"valid", s.data.has_valid ? data_json(s.data.valid) : json()},
           {"environment", environment()}};
  run.update(earlier_starts(dir, resumed_at, s.config.text));
  write_file_atomically(dir / "run.json", json_text(run, 2) + "\n");
  write_file_atomically(dir / "config.cfg", s.config.text);
  return launch;
}

namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }
void put_verdict(json& summary, const BottleneckMetrics& evidence, const std::vector<Trial>& trials) {
  json found = json::array(), hinted = json::array();
  const bool judged = !too_short_to_judge(evidence);
  for (const Finding& f : judged ? findings(evidence, trials) : std::vector<Finding>{})
    found.push_back({{"gain", f.gain},
                     {"at_most", f.at_most},
                     {"evidence", f.evidence},
                     {"advice", f.advice},
                     {"caution", f.caution}});
  for (const Hint& h : judged ? hints(evidence) : std::vector<Hint>{})
    hinted.push_back({{"advice", h.advice}, {"evidence", h.evidence}, {"caution", h.caution}});
  if (const std::string text = verdict(evidence, trials); !text.empty()) summary["verdict"] = first_line(text);
  summary["findings"] = std::move(found);
  summary["hints"] = std::move(hinted);
}

}  // namespace

void rewrite_verdict(const std::filesystem::path& dir, const BottleneckMetrics& evidence,
                     const std::vector<Trial>& trials) {
  std::ifstream in(dir / "summary.json");
  json out = json::parse(in, nullptr, false);
  if (!out.is_object()) fail(Exit::data, "cannot read {}", (dir / "summary.json").string());
  put_verdict(out, evidence, trials);
  write_file_atomically(dir / "summary.json", json_text(out, 2) + "\n");
}

bool is_final_summary(const std::filesystem::path& summary, std::int64_t steps) {
  std::error_code none;
  if (!std::filesystem::exists(summary, none)) return false;
  const json there = json::parse(read_file(summary), nullptr, false);
  return !there.is_discarded() && there.value("status", "") == "finished" &&
         there.value("steps", std::int64_t(-1)) == steps;
}

void write_summary(const std::filesystem::path& dir, const Summary& s, const Account& account,
                   const BottleneckMetrics& evidence) {
  if (s.session_steps == 0 && s.status == "finished" && is_final_summary(dir / "summary.json", s.run.step)) return;
  json out{{"started", s.launch.time},
           {"pid", s.launch.pid},
           {"status", s.status},
           {"steps", s.run.step},
           {"epoch", s.run.epoch},
           {"samples", s.run.samples},
           {"unread_samples", s.run.unread_samples},
           {"session_steps", s.session_steps},
           {"session_samples", s.session_samples},
           {"samples_per_second", s.samples_per_second},
           {"seconds", s.seconds},
           {"speed_of_light", light_json(s.light)},
           {"loss", s.session_steps > 0 ? json(s.final_loss) : json()},
           {"cuda_graph", s.cuda_graph.empty() ? json() : json(s.cuda_graph)},
           {"account", json::parse(account.json())}};
  put_verdict(out, evidence, {});
  for (const char* name : {"valid_loss", "valid_accuracy", "valid_top5"}) out[name] = json();
  if (s.validation) put_evaluation(out, "valid_", *s.validation);
  write_file_atomically(dir / "summary.json", json_text(out, 2) + "\n");
}

}  // namespace millrace
