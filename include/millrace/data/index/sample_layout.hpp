// How the dimensions of a stored sample are interpreted. Reading in place, packing and inspect use the same rule.
#pragma once
#include <optional>
#include <string>

#include "millrace/device/tensor.hpp"

namespace millrace {

enum class Layout { automatic, channels_last, channels_first, no_channels };
Layout parse_layout(const std::string& text);  // "auto", "channels_last", ...; Error(config)

struct SampleLayout {
  Shape stored;                 // as in the file; an image without a channel dimension gets one
  Shape sample;                 // logical, channels last: (F), (L, C), (H, W, C), (D, H, W, C)
  bool channels_first = false;  // of the stored sample
  std::string decided_by;       // "as requested", "by the file's attribute", "by the shape"; empty: there was no choice
};

struct TargetRow {  // a row of y
  DType dtype = DType::f32;
  Shape shape;
};

// Determines the layout of a sample.
// - One dimension: features.
// - `requested` is not automatic: the channels are the first or the last dimension, or (no_channels) all dimensions are
//   spatial and a channel dimension of 1 is added.
// - The file has the attribute "layout": as it says. Error(data), naming `place`, for an unknown value.
// - A row of y is a map of labels, one for each position of a 2-D or 3-D sample: the layout with these positions.
// - Three or more dimensions: the channels come first if the first dimension is 1, 3 or 4 and the last is not; else
// last.
// - Two dimensions: an image (H, W); a channel dimension is added. Signals, (L, C) or (C, L), therefore need
// `requested` or
//   the attribute.
SampleLayout sample_layout(const Shape& stored, Layout requested, const std::optional<std::string>& attribute,
                           const std::string& place, const TargetRow& y = {});

bool is_integer(DType);

// True if rows of y are labels (integers), false if they are targets (floating point). Error(data), naming `place`, for
// several integers in a row, unless they are one for each position of `sample` (logical, channels last).
bool holds_labels(const TargetRow& y, const Shape& sample, const std::string& place);
// The positions of `sample` if rows with labels hold one for each of them, perhaps with an extent of 1 more; else ().
Shape label_positions(const Shape& row, const Shape& sample);

}  // namespace millrace
