// The account as a table for people.
#include "millrace/telemetry/account.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "telemetry/device_report.hpp"
#include "telemetry/spread.hpp"

namespace millrace {
namespace {

const char* plural(double count) { return count == 1 ? "" : "s"; }

std::string step_line(const std::vector<RankAccount>& ranks) {
  if (ranks.empty() || ranks[0].steps == 0) return "";
  const RankAccount& r = ranks[0];  // the ranks step together
  const StepTimeStats& t = r.step_times;
  std::string out = fmt::format("  step time, ms: mean {:.2f}, median {:.2f}, p90 {:.2f}, p99 {:.2f}, max {:.2f}",
                                t.mean * 1e3, t.p50 * 1e3, t.p90 * 1e3, t.p99 * 1e3, t.longest * 1e3);
  if (r.flops > 0 && t.mean > 0) out += fmt::format("; {}FLOP/s per rank", format_count(r.flops / t.mean));
  return out +
         fmt::format("; timing overhead: {:.0f} timestamps per step, {:.0f} ns each\n", r.marks, r.mark_seconds * 1e9);
}

// The loaders of all ranks together.
struct LoaderTotals {
  double capacity = 0, demand = 0;             // samples/s
  double reading = 0, decoding = 0, room = 0;  // seconds of the workers; reading includes decoding
  double samples = 0, batches = 0, workers = 0;
  double sample_bytes = 0;         // of the largest rank
  std::array<double, 4> depths{};  // how often 0, 1, 2, or more batches were ready
};

LoaderTotals loader_totals(const std::vector<RankAccount>& ranks) {
  LoaderTotals out;
  for (const RankAccount& r : ranks) {
    const LoaderStats& l = r.loader;
    out.capacity += l.capacity();
    out.demand += r.demand();
    out.reading += l.read_seconds;
    out.decoding += l.decoded.seconds;
    out.room += l.room_seconds;
    out.samples += double(l.samples);
    out.batches += double(l.batches);
    out.workers += std::max(1, l.workers);
    out.sample_bytes = std::max(out.sample_bytes, l.sample_bytes());
    for (std::size_t d = 0; d < l.queue_depths.size(); ++d)
      out.depths[std::min<std::size_t>(d, 3)] += double(l.queue_depths[d]);
  }
  return out;
}

std::string rate_text(double samples_per_second, double sample_bytes) {
  return fmt::format("{} samples/s, {:.3f} GB/s", format_count(samples_per_second),
                     samples_per_second * sample_bytes * 1e-9);
}

// What the workers did with their time, and how fast they would be with that alone.
std::string worker_line(const LoaderTotals& t) {
  const double all = t.reading + t.room;
  const auto stage = [&](const char* name, double seconds) {
    const std::string share = fmt::format("{} {:.0f} %", name, 100 * seconds / all);
    return seconds <= 0 ? share
                        : fmt::format("{} ({} alone: {})", share, name,
                                      rate_text(t.samples * t.workers / seconds, t.sample_bytes));
  };
  return fmt::format("  time of the loader's workers: {}, {}{}", stage("reading", t.reading - t.decoding),
                     stage("decoding", t.decoding),
                     fmt::format(", waiting for a free slot {:.0f} %\n", 100 * t.room / all));
}

std::string loader_lines(const std::vector<RankAccount>& ranks) {
  if (ranks.empty() || ranks[0].loader.batches == 0) return "";
  const LoaderTotals t = loader_totals(ranks);
  const int workers = ranks[0].loader.workers;
  const Spread wait = spread(ranks, [](const RankAccount& r) { return r.loader.wait_seconds; });
  const Spread first = spread(ranks, [](const RankAccount& r) { return r.loader.first_batch_seconds; });
  std::string out = fmt::format(
      "  loader: {} worker{} per rank can deliver {}; the step can consume {}; first batch after {:.3f} s\n", workers,
      plural(workers), rate_text(t.capacity, t.sample_bytes), rate_text(t.demand, t.sample_bytes), first.max);
  if (workers > 0 && t.reading + t.room > 0) out += worker_line(t);
  const InputPathRates rates = input_path_rates(ranks);
  if (rates.copy_bytes > 0)
    out += fmt::format("  copies to the device alone: {} samples/s, {:.3f} GB/s\n", format_count(rates.copy),
                       rates.copy_bytes * 1e-9);
  if (rates.input_pass > 0)
    out += fmt::format("  the input pass alone: {}\n", rate_text(rates.input_pass, t.sample_bytes));
  const auto percent = [&](int depth) { return 100 * t.depths[std::size_t(depth)] / t.batches; };
  return out + fmt::format(
                   "  batches ready when the step took one: none {:.0f} %, one {:.0f} %, two {:.0f} %, more {:.0f} %; "
                   "the step waited {:.3f} s\n",
                   percent(0), percent(1), percent(2), percent(3), wait.median);
}

std::string bucket_line(const CollectiveOpStats& s, std::size_t ranks) {
  const double times = double(s.times);
  const auto mean_ms = [times](double seconds) { return seconds / times * 1e3; };
  const char* op = s.op == CollectiveOp::all_gather       ? "all-gather"
                   : s.op == CollectiveOp::reduce_scatter ? "reduce-scatter"
                                                          : "all-reduce";
  return fmt::format(
      "    bucket {}: {}, ready at {:.2f} ms of a step, queued {:.2f} ms, {} {:.2f} ms (bus bandwidth {:.2f} GB/s), "
      "needed at {:.2f} ms, exposed {:.2f} ms\n",
      s.tag, format_bytes(std::uint64_t(double(s.bytes) / times)), mean_ms(s.ready), mean_ms(s.queued), op,
      mean_ms(s.busy), s.bus_rate(double(ranks)) * 1e-9, mean_ms(s.needed), mean_ms(s.exposed));
}

std::string communication_lines(const std::vector<RankAccount>& ranks) {
  if (ranks.size() < 2 || ranks[0].sums.empty()) return "";
  constexpr std::size_t max_lines = 4;
  std::string lines;
  std::size_t shown = 0, available = 0;
  int buckets = 0;
  double busy = 0, exposed = 0;
  for (const CollectiveOpStats& s : ranks[0].sums) {
    busy += s.busy;
    exposed += s.exposed;
    available += s.tag >= 0;
    buckets = std::max(buckets, s.tag + 1);
    if (s.tag >= 0 && s.times > 0 && shown++ < max_lines) lines += bucket_line(s, ranks.size());
  }
  const std::string rest =
      available > max_lines ? fmt::format("    {} more in summary.json\n", available - max_lines) : "";
  return fmt::format(
             "  communication of {} bucket{}: busy {:.3f} s, of which exposed {:.3f} s, overlapped {:.3f} s (rank 0)\n",
             buckets, plural(buckets), busy, exposed, busy - exposed) +
         lines + rest;
}

std::string memory_line(const std::vector<RankAccount>& ranks) {
  if (ranks.empty()) return "";
  const Spread used = spread(ranks, [](const RankAccount& r) { return double(r.process.used_bytes()); });
  const RankAccount& first = ranks[0];
  const std::string limit =
      first.memory_limit > 0 ? " of " + format_bytes(std::uint64_t(first.memory_limit)) : std::string();
  return fmt::format("  memory of a rank: {} planned{}, at most {} used\n", format_bytes(first.memory_bytes), limit,
                     format_bytes(std::uint64_t(used.max)));
}

std::string loss_scale_line(const std::vector<RankAccount>& ranks) {
  if (ranks.empty() || ranks[0].skipped_steps == 0 || ranks[0].scales.kept().empty()) return "";
  const RankAccount& r = ranks[0];
  return fmt::format("  loss scale: {} step{} skipped for an overflow, {} change{}, {:.10g} at the end\n",
                     r.skipped_steps, plural(double(r.skipped_steps)), r.scales.changes(),
                     plural(double(r.scales.changes())), r.scales.last());
}

std::string fault_lines(const std::vector<RankAccount>& ranks) {
  std::string out;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const FileFaults& f : ranks[r].faults.files)
      out += fmt::format("  faults: rank {}, {}: {} reads retried, {} samples skipped{}{}\n", r, f.path, f.retries,
                         f.skipped_samples, f.slow ? ", a slow read" : "", f.error.empty() ? "" : " (" + f.error + ")");
  return out;
}

// All ranks together: they share the copies of their nodes.
std::string local_cache_line(const std::vector<RankAccount>& ranks) {
  if (ranks.empty() || ranks[0].staging.files == 0) return "";
  LocalCacheStats all;
  for (const RankAccount& r : ranks) {
    all.bytes_copied += r.staging.bytes_copied;
    all.bytes_reused += r.staging.bytes_reused;
    all.samples += r.staging.samples;
    all.samples_from_copies += r.staging.samples_from_copies;
    if (all.stopped.empty()) all.stopped = r.staging.stopped;
  }
  const double share = all.samples > 0 ? 100 * double(all.samples_from_copies) / double(all.samples) : 0.0;
  return fmt::format(
      "  data.cache: {} copied, {} reused from an earlier run; {} of the samples were read from copies{}\n",
      format_bytes(all.bytes_copied), format_bytes(all.bytes_reused), fmt::format("{:.1f}%", share),
      all.stopped.empty() ? "" : "; some files were not copied: " + all.stopped);
}

}  // namespace

std::string Account::table() const {
  const Spread wall = spread(ranks, [](const RankAccount& r) { return r.wall_seconds; });
  const bool several = ranks.size() > 1;
  std::string out = fmt::format("where the time went: {:.2f} s on {} rank{}\n  {:<14} {:>9} {:>9} {:>9} {:>8}{}\n",
                                wall.median, ranks.size(), several ? "s" : "", "phase", "min s", "median s", "max s",
                                "share", several ? "  min and max on rank" : "");
  for (int p = 0; p < phase_count; ++p) {
    const Spread s = spread(ranks, [p](const RankAccount& r) { return r.seconds[std::size_t(p)]; });
    out += fmt::format("  {:<14} {:9.3f} {:9.3f} {:9.3f} {:7.2f}%", name_of(Phase(p)), s.min, s.median, s.max,
                       wall.median > 0 ? 100 * s.median / wall.median : 0.0);
    const auto named = [&](int rank) { return fmt::format("{} ({})", rank, ranks[std::size_t(rank)].host); };
    if (several && s.max > s.min) out += fmt::format("  {}, {}", named(s.min_rank), named(s.max_rank));
    out += "\n";
  }
  return out + step_line(ranks) + loader_lines(ranks) + communication_lines(ranks) + memory_line(ranks) +
         loss_scale_line(ranks) + local_cache_line(ranks) + fault_lines(ranks) + device_lines(ranks);
}

}  // namespace millrace
