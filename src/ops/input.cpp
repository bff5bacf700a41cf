#include "millrace/ops/input.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

void check(const InputSpec& s) {
  const std::int64_t stored = s.src[-1], used = s.used_channels();
  const int spatial = s.src.spatial_rank();
  if (s.raw == DType::i64)
    fail(Exit::config,
         "input: samples stored as int64 are not supported. store them as int32 or a floating-point type");
  if (spatial > 3 || spatial < 0)
    fail(Exit::config, "input: samples {} have {} spatial dimensions (0 to 3 are supported)", s.src.str(), spatial);
  for (const auto* values : {&s.mean, &s.std, &s.channel_scale, &s.channel_offset})
    if (!values->empty() && std::int64_t(values->size()) != used)
      fail(Exit::config,
           "input: mean, std, channel_scale or channel_offset has {} values, but the samples have {} channels. give "
           "one value per channel",
           values->size(), used);
  for (const std::int64_t c : s.channels)
    if (c < 0 || c >= stored)
      fail(Exit::config, "input: the samples have no channel {}. choose from 0 to {}", c, stored - 1);
  if ((s.saturation > 0 || s.hue > 0) && used != 3)
    fail(Exit::config,
         "input: saturation and hue need 3 channels (red, green, blue), but the network takes {}. set both to 0", used);
  std::int64_t sum = 0;
  for (const std::int64_t part : s.parts) sum += part;
  MR_CHECK(s.parts.empty() || sum == stored, "the parts have {} channels, the samples {}", sum, stored);
  if (!s.subvolume.empty() && int(s.subvolume.size()) != std::max(0, spatial))
    fail(Exit::config,
         "input: the subvolume has {} extents, but samples {} have {} spatial axes. give one extent per axis",
         s.subvolume.size(), s.src.str(), std::max(0, spatial));
  for (std::size_t a = 0; a < s.subvolume.size(); ++a)
    if (s.subvolume[a] < 1 || s.subvolume[a] > s.src[int(a) + 1])
      fail(Exit::config,
           "input: the subvolume has an extent of {} along spatial axis {} of samples {}. choose from 1 to {}",
           s.subvolume[a], a, s.src.str(), s.src[int(a) + 1]);
  for (const std::int64_t axis : s.flip_axes)
    if (axis < 0 || axis >= spatial)
      fail(Exit::config, "input: cannot flip spatial axis {} of samples with {} spatial axes. count the axes from 0",
           axis, spatial);
}

}  // namespace

std::vector<InputChannel> input_channels(const InputSpec& s) {
  check(s);
  std::vector<InputChannel> out;
  for (std::size_t c = 0; c < std::size_t(s.used_channels()); ++c) {
    const double mean = s.mean.empty() ? 0 : s.mean[c], std = s.std.empty() ? 1 : s.std[c];
    const double scale = s.channel_scale.empty() ? s.scale : s.channel_scale[c],
                 offset = s.channel_offset.empty() ? s.offset : s.channel_offset[c];
    const float shift = float(-mean / std), unit = float(1 / std);
    if (s.transform == Transform::none)
      out.push_back({float(scale / std), offset == 0 ? shift : float((offset - mean) / std), 1, shift, unit});
    else
      out.push_back({float(scale), float(offset), unit, shift, unit});
  }
  return out;
}

InputStrides input_strides(const InputSpec& s) {
  std::int64_t positions = 1;
  for (int a = 0; a < s.src.spatial_rank(); ++a) positions *= s.src[1 + a];
  std::vector<InputStrides::Channel> stored;
  const std::vector<std::int64_t> one{s.src[-1]};
  std::int64_t begin = 0;
  for (const std::int64_t part : s.parts.empty() ? one : s.parts) {
    for (std::int64_t c = 0; c < part; ++c)
      stored.push_back(s.channels_first ? InputStrides::Channel{begin + c * positions, 1}
                                        : InputStrides::Channel{begin + c, part});
    begin += part * positions;
  }
  InputStrides out;
  out.each = stored;
  if (!s.channels.empty()) {
    out.each.clear();
    for (const std::int64_t c : s.channels) out.each.push_back(stored[std::size_t(c)]);
  }
  const auto& each = out.each;
  out.first = each[0].first;
  out.pixel_step = each[0].step;
  out.channel_step = each.size() > 1 ? each[1].first - each[0].first : 1;
  bool even = true;
  for (std::size_t c = 0; c < each.size(); ++c)
    even = even && each[c].step == out.pixel_step && each[c].first == out.first + std::int64_t(c) * out.channel_step;
  if (!even) return out;
  out.each.clear();
  out.contiguous = s.used_channels() == s.src[-1] && out.first == 0 && out.channel_step == 1 &&
                   (positions == 1 || out.pixel_step == s.src[-1]);
  return out;
}

}  // namespace millrace
