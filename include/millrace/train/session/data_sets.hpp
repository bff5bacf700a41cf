// DataSets: the training and validation data of a run. index_data_sets() indexes them and checks that they match;
// open_sources() then opens them for reading.
#pragma once
#include <memory>
#include <optional>

#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/train/session/model_record.hpp"

namespace millrace {

struct DataSets {
  bool has_train = false;
  bool has_valid = false;
  ShardIndex train, valid;
  std::unique_ptr<Source> train_source, valid_source;  // set by open_sources(); train_source only for training
  std::uint32_t split_crc32c = 0;                      // RowSplit::crc32c of data.split; 0: there is no split
  std::string tokenizer;                               // of the training data, as text; on rank 0 only; "": none
  std::optional<ShardIndex> trained;  // training_index() of the model that is evaluated, in place of training data

  // The data set that classes, mean and standard deviation are taken from: the training data if there is any.
  const ShardIndex& reference() const { return trained ? *trained : has_train ? train : valid; }
  const char* reference_name() const { return trained ? "the training data of the checkpoint" : "data.train"; }
  ShardIndex& reference() { return trained ? *trained : has_train ? train : valid; }
};

// Error(config) if the data to train on, or to evaluate on, is not set.
void require_data(const RunConfig&, bool training);

// Indexes data.train and data.valid, or with data.split divides data.train. training: the run trains. Then data.valid
// is indexed only if train.evaluate is on, and with data.augment the decoder applies data.random_resized_crop to
// data.train. Measures mean and standard deviation if they are needed and neither the configuration nor the files
// contain them. model: takes them from this model, and does not read data.train for an evaluation; or null. For
// predictions, data.y may be empty: data.valid is then indexed without labels, and only the samples must match.
// Collective. Error(config), Error(data): data.train and data.valid do not match each other, the model or the
// configuration.
DataSets index_data_sets(World&, const RunConfig&, bool training, const ModelRecord* model);

// False: the data was indexed without data.y, for predictions.
inline bool has_targets(const ShardIndex& data) { return data.y.target.count() > 0; }
// Error(config), Error(data): the validation data does not match the data of reference().
void require_matching(const DataSets&);
void require_known_labels(const DataSets&);

// Warns of data that is probably not as it was meant to be, and returns lines about the values of the training data:
// "data.train: rows per class: 0: 50, 1: 48". Rank 0 reads labels or targets and samples, for about
// 0.3 seconds, of large data sets a part. Of data that `millrace pack` wrote only labels or targets are read, and
// nothing is warned, because pack did. Not collective.
std::vector<std::string> examine_data(const World&, const RunConfig&, const DataSets&);
// After a run has diverged: warns of labels or targets of packed data as well.
void warn_of_packed_targets(const World&, const DataSets&);

// Opens the reader of the validation data if it was indexed, and of the training data if `training`. Collective.
void open_sources(World&, const RunConfig&, bool training, DataSets&);

}  // namespace millrace
