// How operations with values for each row and channel walk through a channels-last tensor of (rows, positions,
// channels). The positions of a row are divided into lines: of one position, or of several if there are few channels,
// so that inner loops are long. Lanes are the elements of a line; the values of the channels are repeated to match. The
// lines of a row are divided into parts, which depend only on the shape. So sums over parts, added in order, are the
// same for every number of threads.
#pragma once
#include "cpu/common/tile.hpp"

namespace millrace::cpu {

struct RowLines {
  static constexpr std::int64_t all_parts = 64, min_lines = 8;
  std::int64_t rows, positions, channels, repeat, width, lines, parts, part_lines;

  RowLines(std::int64_t rows_, std::int64_t positions_, std::int64_t channels_)
      : rows(rows_),
        positions(positions_),
        channels(channels_),
        repeat(channels < 64 ? std::clamp<std::int64_t>(64 / channels, 1, positions) : 1),
        width(repeat * channels),
        lines((positions + repeat - 1) / repeat),
        parts(std::clamp<std::int64_t>(lines / min_lines, 1, std::max<std::int64_t>(1, all_parts / rows))),
        part_lines((lines + parts - 1) / parts) {
    parts = (lines + part_lines - 1) / part_lines;  // without empty parts
  }

  // Calls start(part) for each part of all rows, then body(part, begin, lane, n) for n elements of one of its lines,
  // from element `begin` of the tensor and lane `lane` of the line on, n <= tile_count. Part p belongs to row p /
  // parts.
  template <class Start, class Body>
  void each(const Start& start, const Body& body) const {
    const std::int64_t row_count = positions * channels;
    const std::int64_t grain = std::max<std::int64_t>(1, 4 * tile_count / (part_lines * width));
    parallel_ranges(rows * parts, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        start(part);
        const std::int64_t first = part % parts * part_lines, last = std::min(first + part_lines, lines);
        for (std::int64_t line = first; line < last; ++line) {
          const std::int64_t at = line * width, count = std::min(width, row_count - at);
          for (std::int64_t lane = 0; lane < count; lane += tile_count)
            body(part, part / parts * row_count + at + lane, lane, std::min(tile_count, count - lane));
        }
      }
    });
  }

  // to: the lanes of a line. value(c): of a channel.
  template <class Value>
  void spread(float* to, const Value& value) const {
    for (std::int64_t c = 0; c < channels; ++c) to[c] = value(c);
    for (std::int64_t r = 1; r < repeat; ++r) std::copy_n(to, channels, to + r * channels);
  }

  // sums: (parts of all rows, kinds, width). The sum number `kind` of a row and channel.
  double total(const float* sums, int kinds, int kind, std::int64_t row, std::int64_t channel) const {
    double total = 0;
    for (std::int64_t part = row * parts; part < (row + 1) * parts; ++part)
      for (std::int64_t lane = channel; lane < width; lane += channels)
        total += double(sums[(part * kinds + kind) * width + lane]);
    return total;
  }
  std::int64_t sum_count(int kinds) const { return rows * parts * kinds * width; }  // floats
};

}  // namespace millrace::cpu
