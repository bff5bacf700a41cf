#include "millrace/train/session/data_sets.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/data/index/inputs.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/data/scan/split_rows.hpp"
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

// One index, or with several inputs one for each data set of data.x.
ShardIndex index_inputs(World& world, const RunConfig& config, const std::vector<std::string>& paths, bool validation,
                        const ShardIndex* trained, bool several) {
  DataOptions options = data_options(config.data, paths, validation);
  if (!several) return index_like(world, options, trained);
  const bool lines = config.model.name == ModelName::layers;  // the other one is pt2
  if (config.data.sample != SampleKind::rows)
    fail(Exit::config, "data.sample: several inputs are rows of data sets. set it to rows, or {}",
         lines ? "remove the `input` lines" : "export a network with one input");
  std::vector<ShardIndex> inputs;
  const std::vector<std::string> names = input_names(config.data.x);
  for (const std::string& name : names) {
    if (std::ranges::count(names, name) > 1)
      fail(Exit::config, "data.x: '{}' is named twice. name it once{}", name,
           lines ? fmt::format("; several lines `input {}` can read it", name) : ", and each input of the network");
    options.x = name;
    const bool known = trained && inputs.size() < trained->inputs.size();
    inputs.push_back(index_like(world, options, known ? &trained->inputs[inputs.size()] : nullptr));
    if (inputs.back().synthetic())
      fail(Exit::config, "{} synthetic data has one input. {}", lines ? "model.layers:" : "model.file:",
           lines ? "remove the `input` lines" : "set data.train to HDF5 files, or export a network with one input");
    options.y.clear();
    options.ignore_label = ignore_label_from_files;
  }
  return combine_inputs(std::move(inputs));
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

// data.normalize_targets: a regression has targets to normalise.
void require_normalizable_targets(const RunConfig& config, const ShardIndex& data) {
  if (!config.data.normalize_targets) return;
  const auto refuse = [](const char* why) { fail(Exit::config, "data.normalize_targets: {}. set it to off", why); };
  if (config.data.sample == SampleKind::pair)
    refuse("with data.sample = pair, data.normalize normalises the targets like the samples");
  const bool only_labels =
      data.y.parts.empty() ? data.y.labels : std::ranges::all_of(data.y.parts, &ConcatenatedPart::labels);
  if (only_labels) refuse("data.y holds class labels, not targets of a regression");
  if (config.model.loss == Loss::binary_cross_entropy)
    refuse("binary_cross_entropy compares with targets from 0 to 1 as they are");
  for (const std::string& line : config.model.layers)
    if (line.find("binary_cross_entropy") != line.npos && !data.y.has_label_parts())
      refuse("binary_cross_entropy compares with targets from 0 to 1 as they are");
}

void set_normalization(World& world, const DataConfig& c, DataSets& sets, bool has_model) {
  ShardIndex& reference = sets.reference();
  if (reference.inputs.empty()) measure_normalization(world, c, sets, reference);
  for (ShardIndex& input : reference.inputs) measure_normalization(world, c, sets, input);
  sets.train.values.normalize_targets = c.normalize;
  sets.valid.values.normalize_targets = c.normalize;
  if (c.normalize_targets && reference.values.target_mean.empty()) {
    if (has_model)
      fail(Exit::config, "data.normalize_targets: the network of the checkpoint was trained without. set it to off");
    constexpr std::int64_t max_columns = PointwiseLossSpec::max_outputs;
    measure_target_statistics(world, reference, max_columns);
  }
  if (!c.normalize_targets && !reference.values.target_mean.empty())
    fail(Exit::config, "data.normalize_targets: the network of the checkpoint was trained with it. set it to on");
  for (ShardIndex* set : {&sets.train, &sets.valid}) {
    set->values.target_mean = reference.values.target_mean;
    set->values.target_std = reference.values.target_std;
  }
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
           sets.reference_name());
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
  if (!sets.trained) {
    sets.train.values.target_mean = model.values.target_mean;
    sets.train.values.target_std = model.values.target_std;
  }
  for (std::size_t i = 0; sets.has_train && i < std::min(model.inputs.size(), sets.train.inputs.size()); ++i) {
    ShardIndex& input = sets.train.inputs[i];
    const ValueConversion& known = model.inputs[i].values;
    if (known.mean.empty() || std::int64_t(known.mean.size()) != input.sample[-1]) continue;
    input.values.mean = known.mean;
    input.values.std = known.std;
  }
}

// The samples of all inputs of a data set are those of a part. Statistics in the files are of all samples, so they are
// measured again of the part to train on.
void use_part(ShardIndex& data, const std::shared_ptr<const RowSelection>& part, bool forget_statistics) {
  data.selection = part;
  if (forget_statistics && !data.values.mean.empty()) {
    data.values.mean.clear();
    data.values.std.clear();
    data.values.statistics_rejected_reason = "of all samples, not of those for the training";
  }
  for (ShardIndex& input : data.inputs) use_part(input, part, forget_statistics);
}

// An evaluation of other files is free to have no split.
void require_same_split(const DataSets& sets, const ModelRecord& model, bool training) {
  if (model.split_crc32c == sets.split_crc32c) return;
  if (model.split_crc32c == 0)
    fail(Exit::config,
         "data.split: the network of the checkpoint was trained without it, so it knows samples of all parts. name the "
         "files in data.valid, or set another run.dir for a new run");
  if (sets.split_crc32c == 0 && !training) return;
  fail(Exit::config,
       "data.split: the parts are not those of the training, so the network knows samples that it would be measured "
       "with. restore data.train and its files, data.split, data.split_by, data.group, data.fold and data.split_seed, "
       "or set another run.dir for a new run");
}

// Divides data.train, which gives the validation data too.
void split_data(World& world, const RunConfig& config, bool training, DataSets& sets) {
  ShardIndex& whole = sets.has_train ? sets.train : sets.valid;
  const RowSplit split = split_rows(world, whole, config.data);
  sets.split_crc32c = split.crc32c;
  const SplitPart evaluated = training ? SplitPart::valid : config.data.eval_split;
  const auto& part = split.part(evaluated);
  if (part->count() == 0 && !training)
    fail(Exit::config, "data.eval_split: data.split has no samples in the part {}. choose another one (--split)",
         name_of(evaluated));
  if (sets.has_train) {
    sets.has_valid = part->count() > 0 && (config.train.evaluate || !training);
    if (sets.has_valid) sets.valid = sets.train;
    use_part(sets.train, split.train, true);
  }
  if (sets.has_valid) use_part(sets.valid, part, !sets.has_train && !sets.trained);
  log::info(split.text);
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
  const DataConfig& data = config.data;
  if (data.valid.empty() && !training && !(data.splits() && !data.train.empty()))
    fail(Exit::config, "data.valid is not set. set it to the HDF5 files to evaluate on");
  if (data.split_by != SplitBy::rows && !data.splits())
    fail(Exit::config, "data.split_by has no effect without data.split or data.fold. set one of them, or remove it");
  if (!training && data.eval_split != SplitPart::valid && (!data.splits() || !data.valid.empty()))
    fail(Exit::config, "data.eval_split: there is no part {}, because {}. remove data.eval_split (--split)",
         name_of(data.eval_split),
         data.splits() ? "data.valid names the files" : "the run has neither data.split nor data.fold");
  if (data.splits() && !data.valid.empty() && training)
    fail(Exit::config,
         "data.valid: data.split and data.fold take the validation data from data.train. remove data.valid, or both");
}

DataSets index_data_sets(World& world, const RunConfig& config, bool training, const ModelRecord* model) {
  const DataConfig& c = config.data;
  DataSets sets;
  sets.has_train = !c.train.empty() && (training || !model);
  sets.has_valid = !c.valid.empty() && (config.train.evaluate || !training);
  const bool splits = c.splits() && c.valid.empty();
  const watchdog::PartScope part(watchdog::Part::index);
  if (model && !sets.has_train) sets.trained = training_index(*model);
  const bool several = names_inputs(world, config, model);
  if (sets.has_train) sets.train = index_inputs(world, config, c.train, false, nullptr, several);
  if (splits && !sets.has_train) sets.has_valid = true;
  if (sets.has_valid)
    sets.valid =
        index_inputs(world, config, splits ? c.train : c.valid, true, sets.trained ? &*sets.trained : nullptr, several);
  if (splits) split_data(world, config, training, sets);
  if (model) require_same_split(sets, *model, training);
  if (model) use_model(*model, sets);
  if (c.sample == SampleKind::tokens) read_tokenizers(world, model, sets);
  if (sets.has_valid && &sets.reference() != &sets.valid) require_matching(sets);
  const ShardIndex& reference = sets.reference();
  if (c.on_error == OnError::skip && !reference.y.labels)
    fail(Exit::config,
         "data.on_error: skip needs class labels (it gives a skipped sample the label -1), but data.y holds targets. "
         "set it to stop");
  require_normalizable_targets(config, reference);
  set_normalization(world, c, sets, model != nullptr);
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
        make_source(world, sets.valid, c.reader, c, {c.chunk_cache, true},
                    sets.valid.selection && training ? LocalCacheOptions() : remaining_budget(c.cache, sets.train));
}

}  // namespace millrace
