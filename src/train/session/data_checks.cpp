// Whether the data sets of a run match, and warnings of what is probably a mistake in them.
#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/data/scan/survey.hpp"
#include "millrace/train/session/data_sets.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

void require_same_values(const DataSets& sets, const ShardIndex& train, const ShardIndex& valid) {
  if (same_parts(train.x.parts, valid.x.parts) && train.values.scale == valid.values.scale &&
      train.values.offset == valid.values.offset && train.values.channel_scale == valid.values.channel_scale &&
      train.values.channel_offset == valid.values.channel_offset)
    return;
  fail(Exit::data,
       "data.valid and {} store their values with different scale and offset ({:g} and {:g} in data.valid, {:g} and "
       "{:g} in the other; every concatenated data set counts). write both in the same way, or set data.scale and "
       "data.offset",
       sets.reference_name(), valid.values.scale, valid.values.offset, train.values.scale, train.values.offset);
}

// Whether the same columns are labels. The stored types may differ. The records of older checkpoints have no parts.
bool same_kinds(const std::vector<ConcatenatedPart>& a, const std::vector<ConcatenatedPart>& b) {
  const auto alike = [](const ConcatenatedPart& one, const ConcatenatedPart& other) {
    return one.name == other.name && one.count == other.count && one.labels == other.labels;
  };
  const bool older_record = a.empty() && std::ranges::none_of(b, &ConcatenatedPart::labels);
  return older_record || std::ranges::equal(a, b, alike);
}

void require_same_samples(const DataSets& sets, const ShardIndex& train, const ShardIndex& valid) {
  if (const std::string other = first_class_mismatch(valid.classes.names, train.classes.names); !other.empty())
    fail(Exit::data, "in data.valid {} in {}. pack both from folders or tables with the same classes", other,
         sets.reference_name());
  const bool same_targets =
      train.y.labels == valid.y.labels && train.y.target == valid.y.target && same_kinds(train.y.parts, valid.y.parts);
  if (train.sample == valid.sample && train.x.dtype == valid.x.dtype &&
      train.x.channels_first == valid.x.channels_first && (same_targets || !has_targets(valid)))
    return;
  const auto describe = [](const ShardIndex& index) {
    return fmt::format("{} {} samples, channels {}", index.sample.str(), name_of(index.x.dtype),
                       index.x.channels_first ? "first" : "last");
  };
  fail(Exit::data,
       "data.valid holds {}, but {} holds {}. both must have the same shape, type, layout and kind of targets",
       describe(valid), sets.reference_name(), describe(train));
}

void warn_of_targets(const ShardIndex& data, const TargetSurvey& survey, Loss loss) {
  for (const std::string& concern : concerns(data, survey))
    if (loss != Loss::binary_cross_entropy || concern.find("model.loss") == concern.npos)
      log::warn("data.train: " + concern);
}

// For all values that are read at the start of a run: targets, samples and validation samples each have a third, and
// what those before them leave.
constexpr double survey_seconds = 0.3;

void examine_targets(const ShardIndex& data, Loss loss, double deadline, std::vector<std::string>& lines) {
  if (!has_plain_targets(data)) return;
  const TargetSurvey survey = survey_targets(data, deadline);
  lines.push_back("data.train: " + describe(data, survey));
  if (!written_by_pack(data)) warn_of_targets(data, survey, loss);
}

void examine_samples(const ShardIndex& data, double deadline, std::vector<std::string>& lines) {
  if (!has_plain_samples(data) || written_by_pack(data)) return;  // pack has refused values that are not finite
  const SampleSurvey survey = survey_samples(data, deadline);
  lines.push_back("data.train: " + describe(data, survey));
  if (survey.rows_not_finite > 0)  // of a constant input, examine_data() warns
    log::warn("data.train: " + concerns(data, survey).front());
}

// Of the validation data, which may come from another source.
void warn_of_validation(const ShardIndex& valid, double deadline) {
  if (!has_plain_samples(valid) || written_by_pack(valid)) return;
  for (const std::string& concern : concerns(valid, survey_samples(valid, deadline)))
    log::warn("data.valid: " + concern);
}

// The reader reports files that cannot be read.
void unless_unreadable(const auto& examine) {
  try {
    examine();
  } catch (const Error&) {
  }
}

}  // namespace

void require_matching(const DataSets& sets) {
  const ShardIndex &train = sets.reference(), &valid = sets.valid;
  if (train.inputs.size() != valid.inputs.size())
    fail(Exit::config, "data.x names {} inputs, but {} has {}. restore data.x", valid.inputs.size(),
         sets.reference_name(), train.inputs.size());
  for (std::size_t i = 0; i < valid.inputs.size(); ++i) {
    if (train.inputs[i].x.name != valid.inputs[i].x.name)
      fail(Exit::config, "data.x: input {} is '{}', but '{}' in {}. restore data.x", i + 1, valid.inputs[i].x.name,
           train.inputs[i].x.name, sets.reference_name());
    require_same_samples(sets, train.inputs[i], valid.inputs[i]);
    require_same_values(sets, train.inputs[i], valid.inputs[i]);
  }
  require_same_samples(sets, train, valid);
  require_same_values(sets, train, valid);
}

void require_known_labels(const DataSets& sets) {
  const ShardIndex& reference = sets.reference();
  if (sets.has_valid && sets.valid.y.labels && sets.valid.classes.count > reference.classes.count)
    fail(Exit::data,
         "data.valid contains label {}, but {} has only {} classes, counted from 0. use data with the same classes",
         sets.valid.classes.count - 1, sets.reference_name(), reference.classes.count);
  if (!sets.has_valid) return;
  for (std::size_t p = 0; p < std::min(reference.y.parts.size(), sets.valid.y.parts.size()); ++p)
    if (const ConcatenatedPart& of_valid = sets.valid.y.parts[p], &known = reference.y.parts[p];
        of_valid.classes > known.classes)
      fail(Exit::data,
           "data.valid contains label {} of '{}', but {} has only {} classes of it, counted from 0. use data "
           "with the same classes",
           of_valid.classes - 1, of_valid.name, sets.reference_name(), known.classes);
}

std::vector<std::string> examine_data(const World& world, const RunConfig& config, const DataSets& sets) {
  const ShardIndex& data = sets.train;
  if (config.train.global_batch > data.selected_rows())
    log::warn(
        fmt::format("train.global_batch = {} is more than the {} samples of data.train, so each step takes all "
                    "of them. lower it",
                    config.train.global_batch, data.selected_rows()));
  constexpr float least_deviation = 1.1e-6f;  // smaller ones are raised to 1e-6 when they are measured
  if (const auto& deviations = data.values.std;
      data.rows > 1 && !deviations.empty() &&
      *std::max_element(deviations.begin(), deviations.end()) <= least_deviation)
    log::warn(
        fmt::format("data.train: '{}': the values of every channel differ by less than 1e-6, so there is nothing to "
                    "learn from. correct or scale them",
                    data.x.name));
  for (const std::string& concern : layout_concerns(data)) log::warn("data.train: " + concern);
  if (world.rank() != 0) return {};
  const watchdog::WaitScope waits(watchdog::Wait::file);
  std::vector<std::string> lines;
  const double began = steady_seconds(), third = survey_seconds / 3;
  unless_unreadable([&] { examine_targets(data, config.model.loss, began + third, lines); });
  unless_unreadable([&] { examine_samples(data, began + 2 * third, lines); });
  if (sets.has_valid && !sets.valid.selection)
    unless_unreadable([&] { warn_of_validation(sets.valid, began + 3 * third); });
  return lines;
}

void warn_of_packed_targets(const World& world, const DataSets& sets) {
  const ShardIndex& data = sets.train;
  if (world.rank() != 0 || !has_plain_targets(data)) return;
  const watchdog::WaitScope waits(watchdog::Wait::file);
  unless_unreadable([&] {
    if (written_by_pack(data)) warn_of_targets(data, survey_targets(data), Loss::automatic);
  });
}

}  // namespace millrace
