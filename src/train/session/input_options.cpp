#include "train/session/input_options.hpp"

#include <algorithm>
#include <charconv>
#include <span>

#include "millrace/base/error.hpp"
#include "millrace/data/index/inputs.hpp"
#include "train/session/exported_network.hpp"

namespace millrace {
namespace {

std::int64_t channel_number(const std::string& digits, const std::string& word) {
  std::int64_t value = -1;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (problem != std::errc() || end != digits.data() + digits.size() || value < 0)
    fail(Exit::config, "data.channels: '{}' is neither a channel number (from 0) nor a range such as 0-3", word);
  return value;
}

void set_values(InputSpec& s, const ValueOptions& feed, const ShardIndex& data) {
  const auto of_used = [&](const std::vector<double>& stored) {
    std::vector<float> out;
    for (std::size_t c = 0; c < std::size_t(s.channels.empty() ? data.sample[-1] : std::int64_t(s.channels.size()));
         ++c)
      if (!stored.empty()) out.push_back(float(stored[s.channels.empty() ? c : std::size_t(s.channels[c])]));
    return out;
  };
  s.scale = float(data.values.scale);
  s.offset = float(data.values.offset);
  s.transform = data.values.transform;
  s.channel_scale = of_used(data.values.channel_scale);
  s.channel_offset = of_used(data.values.channel_offset);
  if (feed.mean.size() != feed.std.size())
    fail(Exit::config, "data.mean has {} values, but data.std has {}. set both with one value per channel, or neither",
         feed.mean.size(), feed.std.size());
  if (!feed.normalize) {
    if (!feed.mean.empty())
      fail(Exit::config, "data.mean and data.std have no effect with data.normalize = off. remove them");
    return;
  }
  if (feed.mean.empty()) {
    s.mean = of_used(data.values.mean);
    s.std = of_used(data.values.std);
    return;
  }
  const std::size_t used = s.channels.empty() ? std::size_t(data.sample[-1]) : s.channels.size();
  if (feed.mean.size() != used)
    fail(Exit::config,
         "data.mean and data.std have {} values, but the network takes {} channels. set one value per channel",
         feed.mean.size(), used);
  s.mean.assign(feed.mean.begin(), feed.mean.end());
  s.std.assign(feed.std.begin(), feed.std.end());
}

void set_places(InputSpec& s, const DataConfig& feed, const ShardIndex& data) {
  const std::int64_t spatial = data.sample.rank - 1;
  if (!feed.subvolume.empty() && std::int64_t(feed.subvolume.size()) != spatial)
    fail(Exit::config,
         "data.subvolume: there are {} extents, but the samples ({}) have {} spatial axes. set one extent per axis",
         feed.subvolume.size(), data.sample.str(), spatial);
  for (std::size_t a = 0; a < feed.subvolume.size(); ++a)
    if (feed.subvolume[a] > data.sample[int(a)])
      fail(Exit::config, "data.subvolume: {} is larger than the extent {} of the samples ({}). lower it",
           feed.subvolume[a], data.sample[int(a)], data.sample.str());
  s.subvolume = feed.subvolume;
  s.random_subvolume = feed.augment && !feed.subvolume.empty();
  for (const std::int64_t axis : feed.flip_axes)
    if (axis >= spatial)
      fail(Exit::config, "data.flip_axes: the samples ({}) have no spatial axis {}. axes are counted from 0",
           data.sample.str(), axis);
  if (!feed.flip_axes.empty() && !(feed.augment && feed.flip))
    fail(Exit::config, "data.flip_axes has no effect without data.augment = on and data.flip = on. set both");
  s.flip_axes = feed.flip_axes;
}

}  // namespace

std::vector<std::int64_t> used_channels(const ValueOptions& feed, const ShardIndex& data) {
  std::vector<std::int64_t> out;
  for (std::string words : feed.channels)
    for (std::size_t at = 0; at <= words.size();) {
      const std::size_t end = std::min(words.find(',', at), words.size());
      const std::string word = words.substr(at, end - at);
      at = end + 1;
      if (word.empty() && end == words.size() && !words.empty()) continue;  // "0-3, 7"
      const std::size_t dash = word.find('-');
      const std::int64_t first = channel_number(word.substr(0, dash), word),
                         last = dash == word.npos ? first : channel_number(word.substr(dash + 1), word);
      if (last < first) fail(Exit::config, "data.channels: '{}' is a range that ends before it starts", word);
      if (last >= data.sample[-1])
        fail(Exit::config,
             "data.channels: there is no channel {} (the samples are {} with {} channels, counted from 0)", last,
             data.sample.str(), data.sample[-1]);
      for (std::int64_t c = first; c <= last; ++c) out.push_back(c);
    }
  return out;
}

// Refuses keys that do not apply to samples that are cut out of an array (pairs and tokens).
static void refuse_for_cut(const DataConfig& feed, const ShardIndex& data) {
  const SampleKind kind = data.view.sample;
  const auto refuse = [&](bool given, const char* key, const char* why) {
    if (given) fail(Exit::config, "data.{}: {}. remove it", key, why);
  };
  if (kind == SampleKind::pair) {
    refuse(feed.augment, "augment",
           "with data.sample = pair the target is a whole row, which cannot be cropped or flipped with the sample");
    const char* why = "with data.sample = pair the target is a whole row, normalized with the stored statistics";
    refuse(!feed.channels.empty(), "channels", why);
    refuse(!feed.subvolume.empty(), "subvolume", why);
    refuse(!feed.mean.empty(), "mean", why);
  }
  if (kind == SampleKind::tokens) {
    const char* why = "it does not apply to tokens, which are vocabulary indices";
    refuse(!feed.channels.empty(), "channels", why);
    refuse(!feed.subvolume.empty(), "subvolume", why);
    refuse(!feed.mean.empty(), "mean", why);
    refuse(feed.transform != Transform::none, "transform", why);
    refuse(feed.offset != offset_from_files, "offset", why);
    refuse(feed.scale > 0, "scale", why);
  }
}

// Refuses augmentation that would leave nothing of a sample.
static void require_room(const DataConfig& feed, const ShardIndex& data) {
  Shape extents = data.sample;
  for (std::size_t a = 0; a < feed.subvolume.size(); ++a) extents[int(a)] = feed.subvolume[a];
  const auto spatial = std::span(extents.dims).first(std::size_t(extents.rank - 1));
  const std::int64_t shortest = *std::min_element(spatial.begin(), spatial.end());
  const std::int64_t longest = *std::max_element(spatial.begin(), spatial.end());
  if (feed.random_resized_crop == 0 && feed.crop_pad >= shortest)
    fail(Exit::config,
         "data.crop_pad: with {} on each side, some samples of {} would consist of padding only. set it below {}",
         feed.crop_pad, data.sample.str(), shortest);
  if (feed.cutout >= longest)
    fail(Exit::config, "data.cutout: a square of {} covers whole samples of {}. set it below {}", feed.cutout,
         data.sample.str(), longest);
}

InputSpec input_spec(const DataConfig& feed, const ShardIndex& data, std::uint64_t seed) {
  refuse_for_cut(feed, data);
  InputSpec s;
  s.channels_first = data.x.channels_first;
  for (const ConcatenatedPart& part : data.x.parts) s.parts.push_back(part.count);
  s.channels = used_channels(feed, data);
  set_values(s, feed, data);
  set_places(s, feed, data);
  const bool image = data.sample.rank >= 2;
  if (feed.augment && !image)
    fail(Exit::config, "data.augment: augmentation needs images, but the samples are {}. set it to off",
         data.sample.str());
  if (feed.augment && !data.y.labels && data.y.target.rank >= 2 &&
      (feed.crop_pad > 0 || feed.flip || feed.random_resized_crop > 0))
    fail(Exit::config,
         "data.augment: samples would be cropped and flipped without their targets of {}. set data.flip = off, "
         "data.crop_pad = 0 and data.random_resized_crop = 0",
         data.y.target.str());
  if (feed.augment) require_room(feed, data);
  // For encoded images the loader's workers do the random resized crop while decoding. The input pass then does the
  // rest of the augmentation.
  const bool cut = feed.augment && feed.random_resized_crop > 0 && data.encoded() && !data.y.label_maps();
  s.crop_pad = feed.augment && !cut ? feed.crop_pad : 0;
  s.flip = feed.augment && feed.flip;
  s.cutout = feed.augment ? feed.cutout : 0;
  s.random_resized_crop = feed.augment && !cut ? float(feed.random_resized_crop) : 0;
  if (s.random_resized_crop > 0 && data.sample.rank != 3)
    fail(Exit::config, "data.random_resized_crop needs images, but the samples are {}. remove it", data.sample.str());
  if (s.random_resized_crop > 0 && !s.subvolume.empty())
    fail(Exit::config,
         "data.random_resized_crop and data.subvolume both choose a part of the image. remove one of them");
  s.brightness = feed.augment ? float(feed.brightness) : 0;
  s.contrast = feed.augment ? float(feed.contrast) : 0;
  s.saturation = feed.augment ? float(feed.saturation) : 0;
  s.hue = feed.augment ? float(feed.hue) : 0;
  const std::int64_t channels = s.channels.empty() ? data.sample[-1] : std::int64_t(s.channels.size());
  if ((s.saturation > 0 || s.hue > 0) && channels != 3)
    fail(Exit::config,
         "data.saturation and data.hue need red, green and blue, but the network takes {} channels. remove them, or "
         "select three channels with data.channels",
         channels);
  if (!feed.augment && (feed.random_resized_crop > 0 || feed.cutout > 0 || feed.brightness > 0 || feed.contrast > 0 ||
                        feed.saturation > 0 || feed.hue > 0))
    fail(Exit::config,
         "data.random_resized_crop, data.cutout, data.brightness, data.contrast, data.saturation and data.hue have no "
         "effect without data.augment = on. set it, or remove them");
  s.seed = seed;
  return s;
}

bool names_inputs(World& world, const RunConfig& c, const ModelRecord* model) {
  if (c.model.name == ModelName::layers) return has_input_lines(c.model.layers);
  if (c.model.name != ModelName::pt2) return false;
  const bool several = model ? !model->inputs.empty() : exported_input_count(world, c.model) > 1;
  return several && input_names(c.data.x).size() > 1;
}

// The keys for one of several inputs: augmentation is for those that have positions.
static DataConfig keys_for_input(DataConfig feed, const ShardIndex& input) {
  if (input.sample.rank >= 2 || !feed.augment) return feed;
  static_cast<AugmentOptions&>(feed) = {};
  return feed;
}

std::vector<NamedInput> named_inputs(const DataConfig& feed, const ShardIndex& data, std::uint64_t seed) {
  if (data.inputs.empty()) return {};
  const auto refuse = [](bool given, const char* key) {
    if (given) fail(Exit::config, "data.{}: it is for a network with one input. remove it", key);
  };
  refuse(!feed.channels.empty(), "channels");
  refuse(!feed.subvolume.empty(), "subvolume");
  refuse(!feed.mean.empty(), "mean");
  refuse(!feed.flip_axes.empty(), "flip_axes");
  if (feed.augment && data.y.label_maps())
    fail(Exit::config, "data.augment: label maps cannot be moved with one of several inputs. set it to off");
  if (feed.augment && std::ranges::none_of(data.inputs, [](const ShardIndex& i) { return i.sample.rank >= 2; }))
    fail(Exit::config, "data.augment: augmentation needs images, but no input has positions. set it to off");
  std::vector<NamedInput> out;
  for (std::size_t i = 0; i < data.inputs.size(); ++i) {
    const ShardIndex& input = data.inputs[i];
    out.push_back({input.x.name.substr(input.x.name.starts_with('/')), std::int64_t(input_begin(data, i)), input.sample,
                   input.x.dtype, input_spec(keys_for_input(feed, input), input, seed)});
  }
  return out;
}

bool needs_statistics(const ValueOptions& feed, const ShardIndex& data) {
  const bool values = data.view.sample != SampleKind::tokens;
  return feed.normalize && feed.mean.empty() && data.values.mean.empty() && values;
}

}  // namespace millrace
