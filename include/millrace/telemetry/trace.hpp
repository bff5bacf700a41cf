// Trace: what all ranks did in some steps, span by span, in one file that Perfetto and chrome://tracing show.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace millrace {

struct Span {
  std::string track;  // "step", "sums", "loader 1": what follows one after the other, or nests
  std::string name;
  double began = 0, ended = 0;                          // seconds of the rank's own clock
  std::vector<std::pair<std::string, double>> stats{};  // "bytes", ...
};

struct RankTrace {
  std::string host;
  double clock_offset = 0, clock_error = 0;  // of its clock against rank 0's, seconds; how far that may be off
  std::vector<Span> spans;
  std::size_t left_out = 0;  // spans that were too many
  // How ranks send theirs.
  std::string json() const;
  static RankTrace from_json(const std::string&);
};

// Keeps the first `most` spans.
void limit(RankTrace&, std::size_t most);

// A span's place in a file of events: a lane of a rank's track. Spans of a lane are disjoint or lie one inside the
// other; what overlaps otherwise goes into another lane. By began, the longer first; lanes count from 0.
std::vector<int> lanes_of(const std::vector<Span>& one_track_in_order);

// In the Trace Event Format, of JSON. Times are microseconds of rank 0's clock, from the first span on. Says how the
// clocks were compared, and how far they may be off.
std::string trace_json(const std::vector<RankTrace>&);
// What trace_json() wrote, on one clock; clock_offset is as written and already taken away. std::exception when it is
// none of ours.
std::vector<RankTrace> trace_from_json(const std::string&);

}  // namespace millrace
