#include "millrace/telemetry/account.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/telemetry/text.hpp"
#include "telemetry/device_report.hpp"
#include "telemetry/spread.hpp"

namespace millrace {
namespace {

std::string step_line(const std::vector<RankAccount>& ranks) {
  if (ranks.empty() || ranks[0].steps == 0) return "";
  const RankAccount& r = ranks[0];  // ranks step together
  const StepTimeStats& t = r.step_times;
  std::string out = text("  steps, ms: %.2f on average, %.2f median, %.2f p90, %.2f p99, %.2f at most", t.mean * 1e3,
                         t.p50 * 1e3, t.p90 * 1e3, t.p99 * 1e3, t.longest * 1e3);
  if (r.flops > 0 && t.mean > 0) out += cat("; ", format_count(r.flops / t.mean), "FLOP/s a rank");
  return out + text("; measured by %.0f marks a step of %.0f ns\n", r.marks, r.mark_seconds * 1e9);
}

std::string loader_lines(const std::vector<RankAccount>& ranks) {
  if (ranks.empty() || ranks[0].loader.batches == 0) return "";
  double capacity = 0, demand = 0, bytes = 0, batches = 0, reading = 0, decoding = 0, room = 0, samples = 0,
         workers = 0;
  std::array<double, 4> depths{};
  for (const RankAccount& r : ranks) {
    capacity += r.loader.capacity(), batches += double(r.loader.batches);
    reading += r.loader.read_seconds, decoding += r.loader.decoded.seconds, room += r.loader.room_seconds;
    demand += r.demand(), workers += std::max(1, r.loader.workers);
    samples += double(r.loader.samples), bytes = std::max(bytes, r.loader.sample_bytes());
    for (std::size_t d = 0; d < r.loader.queue_depths.size(); ++d)
      depths[std::min<std::size_t>(d, 3)] += double(r.loader.queue_depths[d]);
  }
  const Spread wait = spread(ranks, [](const RankAccount& r) { return r.loader.wait_seconds; });
  const Spread first = spread(ranks, [](const RankAccount& r) { return r.loader.first_batch_seconds; });
  std::string out = text(
      "  loader: %d worker%s a rank, busy all the time, could deliver %s samples/s, %.3f GB/s; the step could take %s, "
      "%.3f GB/s; first batch after %.3f s\n",
      ranks[0].loader.workers, ranks[0].loader.workers == 1 ? "" : "s", format_count(capacity).c_str(),
      capacity * bytes * 1e-9, format_count(demand).c_str(), demand * bytes * 1e-9, first.most);
  if (const double all = reading + room; ranks[0].loader.workers > 0 && all > 0) {
    const auto stage = [&](const char* name, double seconds) {
      const double rate = seconds > 0 ? samples * workers / seconds : 0;
      return text("%s %.0f %%", name, 100 * seconds / all) +
             (rate > 0 ? text(" (alone %s samples/s, %.3f GB/s)", format_count(rate).c_str(), rate * bytes * 1e-9)
                       : "");
    };
    out += cat("  its workers' time: ", stage("reading", reading - decoding), ", ", stage("decoding", decoding),
               text(", waiting for room %.0f %%\n", 100 * room / all));
  }
  const InputPathRates way = input_path_rates(ranks);
  if (way.copy_bytes > 0)
    out += text("  copies to the device, by themselves: %.3f GB/s, %s samples/s\n", way.copy_bytes * 1e-9,
                format_count(way.copy).c_str());
  if (way.input_pass > 0)
    out += text("  the input pass, by itself: %s samples/s, %.3f GB/s of them\n", format_count(way.input_pass).c_str(),
                way.input_pass * bytes * 1e-9);
  return out + text(
                   "  batches ready when one was taken: none %.0f %%, one %.0f %%, two %.0f %%, more %.0f %%; the step "
                   "waited %.3f s\n",
                   100 * depths[0] / batches, 100 * depths[1] / batches, 100 * depths[2] / batches,
                   100 * depths[3] / batches, wait.median);
}

std::string sum_lines(const std::vector<RankAccount>& ranks) {
  if (ranks.size() < 2 || ranks[0].sums.empty()) return "";
  constexpr std::size_t most = 4;
  std::string out;
  std::size_t shown = 0, lines = 0;
  int buckets = 0;
  double busy = 0, exposed = 0;
  for (const CollectiveOpStats& s : ranks[0].sums) {
    busy += s.busy, exposed += s.exposed, lines += s.tag >= 0, buckets = std::max(buckets, s.tag + 1);
    if (s.tag < 0 || s.times == 0 || shown++ >= most) continue;
    const double times = double(s.times), bytes = double(s.bytes) / times;
    const char* done = s.op == CollectiveOp::all_gather       ? "gathered"
                       : s.op == CollectiveOp::reduce_scatter ? "reduce-scattered"
                                                              : "summed";
    out += text(
        "    bucket %d: %s, ready at %.2f ms of a step, queued %.2f ms, %s %.2f ms at %.2f GB/s on the bus, needed at "
        "%.2f ms, exposed %.2f ms\n",
        s.tag, format_bytes(std::uint64_t(bytes)).c_str(), s.ready / times * 1e3, s.queued / times * 1e3, done,
        s.busy / times * 1e3, s.bus_rate(double(ranks.size())) * 1e-9, s.needed / times * 1e3, s.exposed / times * 1e3);
  }
  return text("  sums of %d bucket%s: busy %.3f s, of which exposed %.3f s, hidden %.3f s (rank 0)\n", buckets,
              buckets == 1 ? "" : "s", busy, exposed, busy - exposed) +
         out + (lines > most ? text("    and %zu more, in summary.json\n", lines - most) : "");
}

std::string rank_lines(const std::vector<RankAccount>& ranks) {
  std::string out;
  if (ranks.empty()) return out;
  const Spread memory = spread(ranks, [](const RankAccount& r) { return double(r.process.resident_bytes); });
  const RankAccount& first = ranks[0];
  out += text("  memory: %s planned%s, %s resident at most\n", format_bytes(first.memory_bytes).c_str(),
              first.memory_limit > 0 ? (" of " + format_bytes(std::uint64_t(first.memory_limit))).c_str() : "",
              format_bytes(std::uint64_t(memory.most)).c_str());
  if (first.skipped_steps > 0 && !first.scales.kept().empty())
    out += text("  loss scale: %llu steps skipped, %llu change%s, %.10g at the end\n",
                (unsigned long long)first.skipped_steps, (unsigned long long)first.scales.changes(),
                first.scales.changes() == 1 ? "" : "s", first.scales.last());
  return out;
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

// Of all ranks together: they share the copies of their nodes.
std::string staging_line(const std::vector<RankAccount>& ranks) {
  LocalCacheStats all;
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

}  // namespace

std::string Account::table() const {
  const Spread wall = spread(ranks, [](const RankAccount& r) { return r.wall_seconds; });
  const bool several = ranks.size() > 1;
  std::string out =
      text("where the time went: %.2f s on %zu rank%s\n  %-14s %9s %9s %9s %8s%s\n", wall.median, ranks.size(),
           several ? "s" : "", "phase", "min s", "median s", "max s", "share", several ? "  min and max on rank" : "");
  for (int p = 0; p < phase_count; ++p) {
    const Spread s = spread(ranks, [p](const RankAccount& r) { return r.seconds[std::size_t(p)]; });
    out += text("  %-14s %9.3f %9.3f %9.3f %7.2f%%", name_of(Phase(p)), s.least, s.median, s.most,
                wall.median > 0 ? 100 * s.median / wall.median : 0.0);
    const auto named = [&](int rank) { return cat(rank, " (", ranks[std::size_t(rank)].host, ")"); };
    if (several && s.most > s.least) out += cat("  ", named(s.least_rank), ", ", named(s.most_rank));
    out += "\n";
  }
  return out + step_line(ranks) + loader_lines(ranks) + sum_lines(ranks) + rank_lines(ranks) + staging_line(ranks) +
         fault_lines(ranks) + device_lines(ranks);
}

}  // namespace millrace
