#include "watchdog/judge.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace millrace::watchdog {
namespace {

// After this many timeouts a rank that computes is taken to be in an endless loop.
constexpr double busy_timeouts = 4;

template <class Condition>
std::vector<Position> those(const std::vector<Position>& all, Condition condition) {
  std::vector<Position> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out), condition);
  return out;
}

double longest(const std::vector<Position>& all, double Position::*seconds) {
  double out = 0;
  for (const Position& p : all) out = std::max(out, p.*seconds);
  return out;
}

std::string where(const Position& p, Cause cause) {
  const bool background = cause == Cause::file && p.file_quiet > p.quiet;
  const Wait wait = background ? Wait::file : p.wait;
  return fmt::format("{}{}{}, {}", name_of(background ? p.file_part : p.part), wait == Wait::none ? "" : ", ",
                     name_of(wait), p.step < 0 ? "before the first step" : fmt::format("after step {}", p.step));
}

// "rank 1 on node7 (checkpoint, barrier, after step 12), rank 3 on node8 (...)"; at most four ranks.
std::string list(const Verdict& v) {
  std::string out;
  for (std::size_t i = 0; i < v.blamed.size() && i < 4; ++i)
    out += fmt::format("{}rank {} on {} ({})", i ? ", " : "", v.blamed[i].rank, v.blamed[i].host,
                       where(v.blamed[i], v.cause));
  return v.blamed.size() > 4 ? fmt::format("{} and {} more", out, v.blamed.size() - 4) : out;
}

// "rank 3", or "ranks 0-1, 3"; with hosts, "ranks 0-1 on node7, rank 3 on node8"; at most four hosts. Sorted by rank.
std::string ranks_of(const std::vector<Position>& all) {
  std::map<std::string, std::vector<int>> by_host;
  for (const Position& p : all) by_host[p.host].push_back(p.rank);
  std::string out;
  std::size_t hosts = 0;
  for (const auto& [host, ranks] : by_host) {
    if (hosts++ == 4) return fmt::format("{} and {} more hosts", out, by_host.size() - 4);
    out += fmt::format("{}rank{} ", out.empty() ? "" : ", ", ranks.size() > 1 ? "s" : "");
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const int begin = ranks[i];
      while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
      out += fmt::format("{}{}{}", begin == ranks[0] ? "" : ", ", begin,
                         ranks[i] > begin ? fmt::format("-{}", ranks[i]) : "");
    }
    if (!host.empty()) out += " on " + host;
  }
  return out;
}

std::string describe_missing(const Verdict& v) {
  const Position& here = v.blamed.front();
  const bool other_host = v.whole_host && !*v.missing.front().host;
  return fmt::format("{}{}{} did not come to {} within {:.0f} s. {}{} {} there ({}). look at the {} and the network",
                     v.missing.size() > 1 ? "at least one of " : "", ranks_of(v.missing),
                     other_host ? ", not on this host," : "", name_of(here.wait), v.seconds,
                     v.whole_host ? "all of this host, " : "", ranks_of(v.blamed), v.blamed.size() > 1 ? "are" : "is",
                     where(here, v.cause), v.whole_host ? "other hosts" : "hosts");
}

}  // namespace

const char* name_of(Part part) {
  constexpr const char* names[] = {"start", "setup", "index", "open", "training", "evaluation", "checkpoint", "end"};
  return names[std::size_t(part)];
}

const char* name_of(Wait wait) {
  constexpr const char* names[] = {
      "",           "file system",      "MPI_Init",      "barrier",       "broadcast",   "all-reduce",
      "all-gather", "new communicator", "shared memory", "parallel HDF5", "MPI_Finalize"};
  return names[std::size_t(wait)];
}

std::optional<Verdict> judge(const std::vector<Position>& all, double timeout) {
  const auto silent = those(all, [&](const Position& p) { return p.silent >= timeout; });
  if (!silent.empty()) return Verdict{Cause::silent, silent, longest(silent, &Position::silent)};
  const auto stuck = those(
      all, [&](const Position& p) { return p.file_quiet >= timeout || (p.wait == Wait::file && p.quiet >= timeout); });
  if (!stuck.empty())
    return Verdict{Cause::file, stuck,
                   std::max(longest(stuck, &Position::quiet), longest(stuck, &Position::file_quiet))};
  // The wait began after the cause of the delay, by up to one step.
  const bool waiting = std::any_of(all.begin(), all.end(),
                                   [&](const Position& p) { return for_ranks(p.wait) && p.quiet >= timeout / 2; });
  if (!waiting) return std::nullopt;
  const auto idle = those(all, [&](const Position& p) { return !for_ranks(p.wait) && p.quiet >= timeout; });
  if (!idle.empty()) return Verdict{Cause::idle, idle, longest(idle, &Position::quiet)};
  const double waited = longest(those(all, [](const Position& p) { return for_ranks(p.wait); }), &Position::quiet);
  const auto busy = those(all, [](const Position& p) {
    return p.wait == Wait::none && (p.part == Part::train || p.part == Part::evaluation);
  });
  if (!busy.empty() && waited >= busy_timeouts * timeout) return Verdict{Cause::busy, busy, waited};
  const bool all_wait =
      std::all_of(all.begin(), all.end(), [&](const Position& p) { return for_ranks(p.wait) && p.quiet >= timeout; });
  if (!all_wait) return std::nullopt;
  const auto range =
      std::minmax_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.waits < b.waits; });
  const auto least = range.first->waits;
  if (least == range.second->waits) return Verdict{Cause::unknown, all, longest(all, &Position::quiet)};
  const auto behind = those(all, [&](const Position& p) { return p.waits == least; });
  return Verdict{Cause::behind, behind, longest(behind, &Position::quiet)};
}

std::string describe(const Verdict& v) {
  const std::string who = list(v), seconds = fmt::format("{:.0f} s", v.seconds);
  switch (v.cause) {
    case Cause::silent:
      return fmt::format("{} gave no sign of life for {}: stopped, dead or cut off. look at its host and start again",
                         who, seconds);
    case Cause::file:
      return fmt::format("{} waited {} for a file system. repair it and start again, or raise comm.timeout", who,
                         seconds);
    case Cause::idle:
      return fmt::format("{} did not go on for {} while other ranks waited. look at its host, or raise comm.timeout",
                         who, seconds);
    case Cause::busy:
      return fmt::format("{} computed while other ranks waited {}. it may be in an endless loop, or raise comm.timeout",
                         who, seconds);
    case Cause::behind:
      return fmt::format("{} waited {} for ranks that are further on. look at its host and the network", who, seconds);
    case Cause::missing:
      return describe_missing(v);
    case Cause::unknown:
      break;
  }
  return fmt::format("all ranks waited {} for each other: {}. the network or the file system may be the cause", seconds,
                     who);
}

std::string flight_record(const std::string& reason, const std::vector<Position>& all, const std::string& time) {
  const auto quoted = [](const std::string& text) {
    std::string out = "\"";
    for (const char c : text) out += c == '"' || c == '\\' ? fmt::format("\\{}", c) : std::string(1, c);
    return out + "\"";
  };
  std::string ranks;
  for (const Position& p : all)
    ranks += fmt::format(
        "{}\n  {{\"rank\":{},\"host\":{},\"pid\":{},\"phase\":\"{}\",\"wait\":\"{}\",\"step\":{},\"waits\":{},"
        "\"seconds_without_progress\":{:.1f},\"seconds_without_heartbeat\":{:.1f},\"seconds_in_file\":{:.1f}}}",
        ranks.empty() ? "" : ",", p.rank, quoted(p.host), p.pid, name_of(p.part), name_of(p.wait),
        p.step < 0 ? "null" : std::to_string(p.step), p.waits, p.quiet, p.silent, p.file_quiet);
  return fmt::format("{{\"time\":{},\"reason\":{},\"ranks\":[{}\n]}}\n", quoted(time), quoted(reason), ranks);
}

}  // namespace millrace::watchdog
