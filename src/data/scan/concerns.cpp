// Likely mistakes in a data set, in words.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/data/scan/survey.hpp"

namespace millrace {
namespace {

std::string of_rows(std::int64_t read, std::int64_t all) {
  return read < all ? fmt::format(" (in {} of {} rows)", read, all) : "";
}

// Labels of the classes only, by number.
std::map<std::int64_t, std::int64_t> counted_classes(const TargetSurvey& s) {
  return {s.labels.lower_bound(0), s.labels.end()};
}

void add_negative(std::vector<std::string>& out, const ShardIndex& d, const TargetSurvey& s) {
  std::int64_t negative = 0, all = 0;
  for (const auto& [label, count] : s.labels) {
    all += count;
    if (label < 0) negative += count;
  }
  if (negative > 0 && negative == all)
    out.push_back(fmt::format("'{}': all labels are negative{}, so no sample counts. number the classes from 0",
                              d.y.name, of_rows(s.rows, d.rows)));
  else if (negative > 0 && d.y.target.rank == 0)
    out.push_back(
        fmt::format("'{}': {} of {} labels are negative, so these samples do not count in the loss. number "
                    "the classes from 0 if they should",
                    d.y.name, negative, all));
}

// What labels of all rows tell.
void add_missing(std::vector<std::string>& out, const ShardIndex& d,
                 const std::map<std::int64_t, std::int64_t>& classes) {
  constexpr std::int64_t many_classes = 1000, usual_classes = 20;
  const std::int64_t first = classes.begin()->first, last = classes.rbegin()->first;
  const auto present = std::int64_t(classes.size());
  std::int64_t counted = 0;
  for (const auto& [label, count] : classes) counted += count;
  if (present > usual_classes && counted < 2 * present) {
    out.push_back(fmt::format(
        "'{}': there are {} different labels in {} samples, fewer than two samples a class. are they numbers "
        "of rows, or targets? store class numbers, or floating-point targets for a regression",
        d.y.name, present, counted));
  } else if (present == 1) {
    out.push_back(
        fmt::format("'{}': all samples have the label {}, so there is nothing to tell apart", d.y.name, first));
  } else if (d.classes.count > many_classes && d.classes.count > 2 * present) {
    out.push_back(
        fmt::format("'{}': {} different labels reach up to {}, and the network gets an output for each number. number "
                    "the classes from 0 without gaps",
                    d.y.name, present, last));
  } else if (first > 0) {
    out.push_back(
        fmt::format("'{}': the labels begin at {}. classes are numbered from 0: subtract {}, or outputs of "
                    "the network have nothing to learn",
                    d.y.name, first, first));
  } else if (present < d.classes.count) {
    std::int64_t missing = 0;
    while (classes.contains(missing)) ++missing;
    out.push_back(fmt::format("'{}': {} of {} classes have no sample, the first is {}", d.y.name,
                              d.classes.count - present, d.classes.count, missing));
  }
}

void add_label_concerns(std::vector<std::string>& out, const ShardIndex& d, const TargetSurvey& s) {
  const auto classes = counted_classes(s);
  add_negative(out, d, s);
  if (classes.empty()) return;
  if (const std::int64_t last = classes.rbegin()->first; last >= d.classes.count) {
    out.push_back(
        fmt::format("'{}': {} rows have the label {}, but the files' attribute classes says that there are {}, "
                    "numbered from 0. correct the labels or the attribute",
                    d.y.name, classes.rbegin()->second, last, d.classes.count));
    return;
  }
  if (s.rows < d.rows) return;
  const std::size_t before = out.size();
  add_missing(out, d, classes);
  constexpr std::int64_t few = 5, usual = 50;
  const auto rarest = std::min_element(classes.begin(), classes.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (out.size() == before && rarest->second < few && s.rows / std::int64_t(classes.size()) >= usual)
    out.push_back(fmt::format("'{}': class {} has only {} of {} samples. add some, or leave it out", d.y.name,
                              rarest->first, rarest->second, s.rows));
}

void add_target_concerns(std::vector<std::string>& out, const ShardIndex& d, const TargetSurvey& s) {
  constexpr double large = 100;
  const ValueRange& t = s.targets;
  const std::string some = of_rows(s.rows, d.rows);
  if (t.not_finite > 0)
    out.push_back(
        fmt::format("'{}': {} targets are not finite{}, the first in {}. correct them, or leave their rows "
                    "out",
                    d.y.name, t.not_finite, some, s.first_not_finite));
  if (t.count == 0) return;
  if (s.rows > 1 && t.smallest == t.largest)
    out.push_back(
        fmt::format("'{}': all targets are {:g}{}, so there is nothing to learn", d.y.name, t.smallest, some));
  else if (s.one_hot && s.rows > 1)
    out.push_back(
        fmt::format("'{}': one target of each row is 1 and the others are 0{}. if these are one-hot labels, store the "
                    "class number as an integer (numpy: y.argmax(1)). they are learned as a regression now",
                    d.y.name, some));
  else if (s.whole_numbers && t.smallest >= 0 && t.largest > 1 && d.y.target.count() == 1 &&
           s.distinct.size() <= TargetSurvey::max_distinct && s.rows >= 2 * std::int64_t(s.distinct.size()))
    out.push_back(
        fmt::format("'{}': the targets are whole numbers from {:g} to {:g}{}, stored as floating point. if they are "
                    "classes, store integers (numpy: y.astype('int32')). they are learned as a regression now",
                    d.y.name, t.smallest, t.largest, some));
  else if (s.whole_numbers && t.smallest == 0 && t.largest == 1 && d.y.target.count() == 1)
    out.push_back(
        fmt::format("'{}': the targets are 0 and 1{}, stored as floating point. if they are classes, store integers "
                    "(numpy: y.astype('int32')), or set model.loss = binary_cross_entropy. other losses learn them as "
                    "a regression",
                    d.y.name, some));
  else if (std::max(std::abs(t.smallest), std::abs(t.largest)) > large && d.values.target_mean.empty())
    out.push_back(
        fmt::format("'{}': the targets reach from {:g} to {:g}{}, and are not normalized. set "
                    "data.normalize_targets = on, or the loss may grow beyond bounds",
                    d.y.name, t.smallest, t.largest, some));
}

}  // namespace

std::vector<std::string> concerns(const ShardIndex& d, const TargetSurvey& s) {
  std::vector<std::string> out;
  if (d.y.labels)
    add_label_concerns(out, d, s);
  else
    add_target_concerns(out, d, s);
  return out;
}

std::vector<std::string> concerns(const ShardIndex& d, const SampleSurvey& s) {
  std::vector<std::string> out;
  if (s.rows_not_finite > 0)
    out.push_back(
        fmt::format("'{}': {} of {} rows have values that are not finite, the first is {}. correct them, or "
                    "leave these rows out",
                    d.x.name, s.rows_not_finite, s.rows, s.first_not_finite));
  if (s.rows > 1 && s.values.count > 0 && s.values.smallest == s.values.largest)
    out.push_back(fmt::format("'{}': all values are {:g}{}, so there is nothing to learn from", d.x.name,
                              s.values.smallest, of_rows(s.rows, d.rows)));
  return out;
}

std::vector<std::string> layout_concerns(const ShardIndex& d) {
  constexpr std::int64_t many_channels = 16, ratio = 4;
  if (!d.x.layout_decided_by.ends_with("an image of one channel") || d.sample.rank != 3) return {};
  const std::int64_t narrow = std::min(d.sample[0], d.sample[1]), wide = std::max(d.sample[0], d.sample[1]);
  if (narrow > many_channels || wide < ratio * narrow) return {};
  return {fmt::format(
      "'{}': samples of {}x{} are taken for images of one channel. if they are signals of {} channels, "
      "set data.layout (--layout) = {}",
      d.x.name, d.sample[0], d.sample[1], narrow, d.sample[1] == narrow ? "channels_last" : "channels_first")};
}

std::string describe(const ShardIndex& d, const SampleSurvey& s) {
  return fmt::format("values of '{}' as stored: {:g} to {:g}, {} of {} rows with NaN or infinity{}", d.x.name,
                     s.values.smallest, s.values.largest, s.rows_not_finite, s.rows, of_rows(s.rows, d.rows));
}

std::string describe(const ShardIndex& d, const TargetSurvey& s) {
  constexpr std::size_t most = 20;
  const std::string some = of_rows(s.rows, d.rows);
  if (!d.y.labels)
    return fmt::format("targets: {:g} to {:g}, mean {:.4g}, standard deviation {:.4g}, {} NaN or infinite{}",
                       s.targets.smallest, s.targets.largest, s.targets.mean(), s.targets.deviation(),
                       s.targets.not_finite, some);
  std::string out = d.y.label_maps() ? "labels per class: " : "rows per class: ";
  std::size_t shown = 0;
  for (const auto& [label, count] : s.labels) {
    if (shown == most) break;
    const bool named = label >= 0 && std::size_t(label) < d.classes.names.size();
    out += fmt::format("{}{}: {}", shown++ ? ", " : "",
                       named ? d.classes.names[std::size_t(label)] : std::to_string(label), count);
  }
  return out + (s.labels.size() > most ? fmt::format(", ... {} more", s.labels.size() - most) : "") + some;
}

}  // namespace millrace
