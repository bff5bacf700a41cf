#include "millrace/data/index/sample_layout.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

bool channels_first_by_shape(const Shape& stored) {
  const auto few = [](std::int64_t c) { return c == 1 || c == 3 || c == 4; };
  return stored.rank >= 3 && few(stored[0]) && !few(stored[-1]);
}

// Extents [begin, end) of a shape.
Shape part_of(const Shape& shape, int begin, int end) {
  Shape out;
  for (int a = begin; a < end; ++a) out.dims[std::size_t(out.rank++)] = shape[a];
  return out;
}

// `row` with `rank` extents, after an extent of 1 at its end or its beginning is removed; unchanged if there is none.
Shape without_channel(const Shape& row, int rank) {
  if (row.rank != rank + 1) return row;
  if (row[-1] == 1) return part_of(row, 0, rank);
  return row[0] == 1 ? part_of(row, 1, row.rank) : row;
}

// automatic: y holds no maps of labels, or they fit both layouts.
Layout layout_by_labels(const Shape& stored, const TargetRow& y) {
  if (!is_integer(y.dtype) || stored.rank < 2) return Layout::automatic;
  const Shape map = without_channel(y.shape, stored.rank - 1);
  const bool last = map.rank >= 2 && map == part_of(stored, 0, stored.rank - 1),
             first = map.rank >= 2 && map == part_of(stored, 1, stored.rank);
  if (first != last) return first ? Layout::channels_first : Layout::channels_last;
  const bool spatial_only = stored.rank <= 3 && without_channel(y.shape, stored.rank) == stored;
  return spatial_only ? Layout::no_channels : Layout::automatic;
}

}  // namespace

bool is_integer(DType t) {
  return t == DType::u8 || t == DType::i8 || t == DType::u16 || t == DType::i16 || t == DType::i32 || t == DType::i64;
}

Layout parse_layout(const std::string& text) {
  if (text == "auto") return Layout::automatic;
  if (text == "channels_last") return Layout::channels_last;
  if (text == "channels_first") return Layout::channels_first;
  if (text == "no_channels") return Layout::no_channels;
  fail(Exit::config, "layout '{}' is none of auto|channels_last|channels_first|no_channels", text);
}

SampleLayout sample_layout(const Shape& stored, Layout requested, const std::optional<std::string>& attribute,
                           const std::string& place, const TargetRow& y) {
  SampleLayout out{stored, stored, false, ""};
  if (stored.rank < 2 && requested != Layout::no_channels) return out;
  bool add_channel = false;
  if (requested != Layout::automatic) {
    out.decided_by = "as requested";
    out.channels_first = requested == Layout::channels_first;
    add_channel = requested == Layout::no_channels;
  } else if (attribute) {
    if (*attribute != "channels_last" && *attribute != "channels_first")
      fail(Exit::data,
           "{} has a layout attribute '{}', neither channels_last nor channels_first. set data.layout, or --layout of "
           "pack and inspect",
           place, *attribute);
    out.decided_by = "by the file's attribute";
    out.channels_first = *attribute == "channels_first";
  } else if (const Layout by_labels = layout_by_labels(stored, y); by_labels != Layout::automatic) {
    out.decided_by = "by the label maps";
    out.channels_first = by_labels == Layout::channels_first;
    add_channel = by_labels == Layout::no_channels;
  } else {
    out.decided_by = "by the shape";
    out.channels_first = channels_first_by_shape(stored);
    add_channel = stored.rank == 2;
    if (add_channel) out.decided_by += ", an image of one channel";
  }
  if (add_channel) {
    if (stored.rank == Shape::max_rank - 2)
      fail(Exit::data, "{}: samples of {} without channels. they have three spatial extents at most", place,
           stored.str());
    out.stored.dims[std::size_t(out.stored.rank++)] = 1;
  }
  out.sample = out.stored;
  if (!out.channels_first) return out;
  for (int a = 0; a + 1 < stored.rank; ++a) out.sample[a] = stored[a + 1];
  out.sample[-1] = stored[0];
  return out;
}

Shape label_positions(const Shape& row, const Shape& sample) {
  const Shape positions = part_of(sample, 0, std::max(0, sample.rank - 1));
  return row.count() > 1 && without_channel(row, positions.rank) == positions ? positions : Shape{};
}

bool holds_labels(const TargetRow& y, const Shape& sample, const std::string& place) {
  if (!is_integer(y.dtype)) return false;
  if (y.shape.count() == 1 || label_positions(y.shape, sample).rank > 0) return true;
  const Shape positions = part_of(sample, 0, std::max(0, sample.rank - 1));
  fail(
      Exit::data,
      "{} holds {} integers a row. class labels are one number a row{} (for one-hot rows, store their argmax); targets "
      "of a regression are floating point",
      place, y.shape.str(),
      positions.rank > 0 ? fmt::format(", or one for each position of a sample, here {}", positions.str()) : "");
}

}  // namespace millrace
