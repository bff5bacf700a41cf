#include "millrace/data/index/sample_layout.hpp"

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

bool channels_first_by_shape(const Shape& stored) {
  const auto few = [](std::int64_t c) { return c == 1 || c == 3 || c == 4; };
  return stored.rank >= 3 && few(stored[0]) && !few(stored[-1]);
}

bool is_integer(DType t) {
  return t == DType::u8 || t == DType::i8 || t == DType::u16 || t == DType::i16 || t == DType::i32 || t == DType::i64;
}

}  // namespace

Layout parse_layout(const std::string& text) {
  if (text == "auto") return Layout::automatic;
  if (text == "channels_last") return Layout::channels_last;
  if (text == "channels_first") return Layout::channels_first;
  if (text == "no_channels") return Layout::no_channels;
  fail(Exit::config, "layout '{}' is none of auto|channels_last|channels_first|no_channels", text);
}

SampleLayout sample_layout(const Shape& stored, Layout requested, const std::optional<std::string>& attribute,
                           const std::string& place) {
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

bool holds_labels(DType dtype, const Shape& row, const std::string& place) {
  if (!is_integer(dtype)) return false;
  if (row.count() == 1) return true;
  fail(Exit::data,
       "{} holds {} integers a row. class labels are one number a row (for one-hot rows, store their argmax); targets "
       "of a regression are floating point",
       place, row.str());
}

}  // namespace millrace
