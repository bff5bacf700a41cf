#include "millrace/train/session/data_sets.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/data/index/inputs.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/data/scan/stored_tokenizer.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/session/input_options.hpp"

namespace millrace {
namespace {

constexpr std::int64_t samples_for_statistics = 10000;

DataOptions data_options(const DataConfig& c, const std::vector<std::string>& paths, bool validation) {
  DataOptions out;
  out.paths = paths;
  out.x = c.x;
  out.y = c.y;
  out.layout = c.layout;
  out.scale = c.scale;
  out.offset = c.offset;
  out.transform = c.transform;
  out.decode.resize = c.resize;
  out.decode.crop = c.crop;
  out.manifest_cache = c.manifest_cache;
  out.view = c;
  out.validation_part = validation && c.holdout > 0;
  out.faults = c;
  out.ignore_label = c.ignore_label;
  return out;
}

// False: the data was indexed without data.y, for predictions.
bool has_targets(const ShardIndex& data) { return data.y.target.count() > 0; }

// Without labels, only the shape may say where the channels are. If it says otherwise than what was known of the
// training data, they are where they were there. trained: null if it is not known.
ShardIndex index_like(World& world, DataOptions options, const ShardIndex* trained) {
  ShardIndex out = index_shards(world, options);
  const bool by_shape = options.layout == Layout::automatic && out.x.layout_decided_by.starts_with("by the shape");
  if (!trained || !by_shape || has_targets(out)) return out;
  if (out.sample == trained->sample && out.x.channels_first == trained->x.channels_first) return out;
  options.layout = trained->sample.rank > out.sample.rank ? Layout::no_channels
                   : trained->x.channels_first            ? Layout::channels_first
                                                          : Layout::channels_last;
  return index_shards(world, options);
}

// One index, or with lines `input` one for each data set of data.x.
ShardIndex index_inputs(World& world, const RunConfig& config, const std::vector<std::string>& paths, bool validation,
                        const ShardIndex* trained) {
  DataOptions options = data_options(config.data, paths, validation);
  if (!names_inputs(config.model)) return index_like(world, options, trained);
  if (config.data.sample != SampleKind::rows)
    fail(Exit::config,
         "data.sample: several inputs are rows of data sets. set it to rows, or remove the `input` lines");
  std::vector<ShardIndex> inputs;
  const std::vector<std::string> names = input_names(config.data.x);
  for (const std::string& name : names) {
    if (std::ranges::count(names, name) > 1)
      fail(Exit::config, "data.x: '{}' is named twice. name it once; several lines `input {}` can read it", name, name);
    options.x = name;
    const bool known = trained && inputs.size() < trained->inputs.size();
    inputs.push_back(index_like(world, options, known ? &trained->inputs[inputs.size()] : nullptr));
    if (inputs.back().synthetic())
      fail(Exit::config, "model.layers: synthetic data has one input. remove the `input` lines");
    options.y.clear();
    options.ignore_label = ignore_label_from_files;
  }
  return combine_inputs(std::move(inputs));
}

// The data that data.valid must match, as messages call it.
const char* name_of_reference(const DataSets& sets) {
  return sets.trained ? "the training data of the checkpoint" : "data.train";
}

void require_same_values(const DataSets& sets, const ShardIndex& train, const ShardIndex& valid) {
  if (same_parts(train.x.parts, valid.x.parts) && train.values.scale == valid.values.scale &&
      train.values.offset == valid.values.offset && train.values.channel_scale == valid.values.channel_scale &&
      train.values.channel_offset == valid.values.channel_offset)
    return;
  fail(Exit::data,
       "data.valid and {} store their values with different scale and offset ({:g} and {:g} in data.valid, {:g} and "
       "{:g} in the other; every concatenated data set counts). write both in the same way, or set data.scale and "
       "data.offset",
       name_of_reference(sets), valid.values.scale, valid.values.offset, train.values.scale, train.values.offset);
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
         name_of_reference(sets));
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
       describe(valid), name_of_reference(sets), describe(train));
}

void require_matching(const DataSets& sets) {
  const ShardIndex &train = sets.reference(), &valid = sets.valid;
  if (train.inputs.size() != valid.inputs.size())
    fail(Exit::config, "data.x names {} inputs, but {} has {}. restore data.x", valid.inputs.size(),
         name_of_reference(sets), train.inputs.size());
  for (std::size_t i = 0; i < valid.inputs.size(); ++i) {
    if (train.inputs[i].x.name != valid.inputs[i].x.name)
      fail(Exit::config, "data.x: input {} is '{}', but '{}' in {}. restore data.x", i + 1, valid.inputs[i].x.name,
           train.inputs[i].x.name, name_of_reference(sets));
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
         sets.valid.classes.count - 1, name_of_reference(sets), reference.classes.count);
  if (!sets.has_valid) return;
  for (std::size_t p = 0; p < std::min(reference.y.parts.size(), sets.valid.y.parts.size()); ++p)
    if (const ConcatenatedPart& of_valid = sets.valid.y.parts[p], &known = reference.y.parts[p];
        of_valid.classes > known.classes)
      fail(Exit::data,
           "data.valid contains label {} of '{}', but {} has only {} classes of it, counted from 0. use data "
           "with the same classes",
           of_valid.classes - 1, of_valid.name, name_of_reference(sets), known.classes);
}

// Sets mean and standard deviation of the input, and whether targets are normalized with them.
void measure_normalization(World& world, const DataConfig& c, const DataSets& sets, ShardIndex& reference) {
  if (needs_statistics(c, reference)) {
    if (sets.trained)
      fail(Exit::config, "data.normalize: the network of the checkpoint was trained without. set it to off");
    if (!reference.values.statistics_rejected_reason.empty())
      log::info(fmt::format("mean and std in the files are {}, so they are measured again",
                            reference.values.statistics_rejected_reason));
    measure_statistics(world, reference, samples_for_statistics, c);
  }
}

void set_normalization(World& world, const DataConfig& c, DataSets& sets) {
  ShardIndex& reference = sets.reference();
  if (reference.inputs.empty()) measure_normalization(world, c, sets, reference);
  for (ShardIndex& input : reference.inputs) measure_normalization(world, c, sets, input);
  sets.train.values.normalize_targets = c.normalize;
  sets.valid.values.normalize_targets = c.normalize;
  if (sets.has_valid && sets.valid.view.sample == SampleKind::pair) {  // targets are normalized like the input
    sets.valid.values.mean = reference.values.mean;
    sets.valid.values.std = reference.values.std;
  }
}

// Rank 0 reads the tokenizer of the training data, and compares it with that of the validation data.
void read_tokenizers(World& world, const ModelRecord* model, DataSets& sets) {
  const std::string problem = message_of([&] {
    if (world.rank() != 0) return;
    sets.tokenizer = sets.has_train ? stored_tokenizer(sets.train) : model ? model->tokenizer : "";
    if (!sets.has_valid || sets.tokenizer.empty()) return;
    const std::string other = stored_tokenizer(sets.valid);
    if (!other.empty() && other != sets.tokenizer)
      fail(Exit::data, "data.valid and {} have different tokenizers. pack both with the same one",
           name_of_reference(sets));
  });
  world.agree(Exit::data, problem);
}

void use_model(const ModelRecord& model, DataSets& sets) {
  if (sets.trained) {
    sets.trained->view = sets.valid.view;
  } else if (!model.values.mean.empty() && std::int64_t(model.values.mean.size()) == sets.train.sample[-1]) {
    sets.train.values.mean = model.values.mean;
    sets.train.values.std = model.values.std;
  }
  for (std::size_t i = 0; sets.has_train && i < std::min(model.inputs.size(), sets.train.inputs.size()); ++i) {
    ShardIndex& input = sets.train.inputs[i];
    const ValueConversion& known = model.inputs[i].values;
    if (known.mean.empty() || std::int64_t(known.mean.size()) != input.sample[-1]) continue;
    input.values.mean = known.mean;
    input.values.std = known.std;
  }
}

// The part of the budget for local copies that the training files leave free.
LocalCacheOptions remaining_budget(LocalCacheOptions cache, const ShardIndex& train) {
  if (cache.budget == 0) return cache;
  std::uint64_t taken = 0;
  for (const Shard& s : train.shards) taken += s.file_bytes;
  if (taken >= cache.budget) return {};
  cache.budget -= taken;
  return cache;
}

}  // namespace

void require_data(const RunConfig& config, bool training) {
  if (config.data.train.empty() && training)
    fail(Exit::config, "data.train is not set. set it to the HDF5 files to train on");
  if (config.data.valid.empty() && !training)
    fail(Exit::config, "data.valid is not set. set it to the HDF5 files to evaluate on");
}

DataSets index_data_sets(World& world, const RunConfig& config, bool training, const ModelRecord* model) {
  const DataConfig& c = config.data;
  DataSets sets;
  sets.has_train = !c.train.empty() && (training || !model);
  sets.has_valid = !c.valid.empty() && (config.train.evaluate || !training);
  const watchdog::PartScope part(watchdog::Part::index);
  if (model && !sets.has_train) sets.trained = training_index(*model);
  if (sets.has_train) sets.train = index_inputs(world, config, c.train, false, nullptr);
  if (sets.has_valid) sets.valid = index_inputs(world, config, c.valid, true, sets.trained ? &*sets.trained : nullptr);
  if (model) use_model(*model, sets);
  if (c.sample == SampleKind::tokens) read_tokenizers(world, model, sets);
  if (sets.has_valid && &sets.reference() != &sets.valid) require_matching(sets);
  const ShardIndex& reference = sets.reference();
  if (c.on_error == OnError::skip && !reference.y.labels)
    fail(Exit::config,
         "data.on_error: skip needs class labels (it gives a skipped sample the label -1), but data.y holds targets. "
         "set it to stop");
  set_normalization(world, c, sets);
  if ((c.resize > 0 || c.crop > 0) && !sets.train.encoded() && !sets.valid.encoded())
    fail(Exit::config,
         "data.resize and data.crop need encoded images, but the samples are arrays of {} values. remove both keys",
         reference.sample.str());
  if ((c.resize > 0 || c.crop > 0) && reference.y.label_maps())
    fail(Exit::config,
         "data.resize and data.crop would resize the images, but not their label maps of {}. remove both keys, and "
         "store images of that size",
         reference.y.target.str());
  if (c.augment && training && !reference.y.label_maps()) {  // of those, the input pass moves images and labels
    sets.train.decode.min_area = c.random_resized_crop;
    sets.train.decode.seed = config.run.seed;
  }
  require_known_labels(sets);
  if (config.model.class_weights == std::vector<std::string>{balanced_class_weights} && sets.has_train &&
      sets.train.y.labels && c.sample != SampleKind::tokens)
    sets.train.classes.label_counts = count_labels(world, sets.train);
  return sets;
}

void open_sources(World& world, const RunConfig& config, bool training, DataSets& sets) {
  const watchdog::PartScope part(watchdog::Part::open);
  const DataConfig& c = config.data;
  if (training)
    sets.train_source =
        make_source(world, sets.train, c.reader, c, {c.chunk_cache, c.shuffle == Shuffle::off}, c.cache);
  if (sets.has_valid)
    sets.valid_source =
        make_source(world, sets.valid, c.reader, c, {c.chunk_cache, true}, remaining_budget(c.cache, sets.train));
}

}  // namespace millrace
