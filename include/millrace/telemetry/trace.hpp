// Trace: what all ranks did in some steps, span by span, in one file for Perfetto and chrome://tracing.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace millrace {

struct Span {
  std::string track;  // "step", "sums", "loader 1"; spans of a track follow each other or nest
  std::string name;
  double began = 0, ended = 0;                          // seconds of the rank's own clock
  std::vector<std::pair<std::string, double>> stats{};  // name and value: "bytes", ...
};

struct RankTrace {
  std::string host;
  double clock_offset = 0;  // seconds that this rank's clock is ahead of rank 0's
  double clock_error = 0;   // the largest error of clock_offset, in seconds
  std::vector<Span> spans;
  std::size_t left_out = 0;  // spans beyond the limit
  // The form in which ranks send their traces.
  std::string json() const;
  static RankTrace from_json(const std::string&);
};

// Keeps the first `max_spans` spans and counts the others.
void limit(RankTrace&, std::size_t max_spans);

// Returns the lane of each span of one track, from 0. Spans in a lane are disjoint or nested; a span that overlaps in
// another way gets another lane. The spans must be sorted by their begin, longer ones first.
std::vector<int> lanes_of(const std::vector<Span>& one_track_in_order);

// The Trace Event Format, as JSON. Times are microseconds of rank 0's clock since the first span. The file also says
// how the clocks were compared and how large the error may be.
std::string trace_json(const std::vector<RankTrace>&);
// Reads what trace_json() wrote. All times are on rank 0's clock; clock_offset is what the file states and is already
// subtracted. Throws a std::exception if the text is not such a file.
std::vector<RankTrace> trace_from_json(const std::string&);

}  // namespace millrace
