// How the extents of a stored sample are read. The one rule for files read in place, for packing and for inspect.
#pragma once
#include <optional>
#include <string>

#include "millrace/device/tensor.hpp"

namespace millrace {

enum class Layout { automatic, channels_last, channels_first, no_channels };
Layout parse_layout(const std::string& text);  // "auto", "channels_last", ...; Error(config)

struct SampleLayout {
  Shape stored;                 // as in the file, with the channel of an image that has none there
  Shape sample;                 // logical, channels last: (F), (L, C), (H, W, C), (D, H, W, C)
  bool channels_first = false;  // how it is stored
  std::string decided_by;       // "as asked", "by the file's attribute", "by the shape"; empty where there is no choice
};

// A sample of one extent is features. Of more, one extent holds the channels: the first or the last, as `asked`, or as
// the file's attribute says, or none (no_channels: all are spatial, and one channel is added); or as the shape tells:
// of three and more extents the first when it is 1, 3 or 4 and the last is not, else the last; two extents are an image
// (H, W), its one channel is added. So signals, (L, C) or (C, L), are asked for or have the attribute. Error(data),
// with `place`, for an attribute of another word.
SampleLayout sample_layout(const Shape& stored, Layout asked, const std::optional<std::string>& attribute,
                           const std::string& place);

// Class numbers: one integer a row. False: targets, floating point. Error(data), with `place`, for several integers.
bool holds_labels(DType, const Shape& row, const std::string& place);

}  // namespace millrace
