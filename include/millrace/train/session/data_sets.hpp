// DataSets: the training and validation data of a run. Indexed and checked against each other first; opened for reading
// when it is known how they will be read.
#pragma once
#include <memory>

#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/source.hpp"

namespace millrace {

struct DataSets {
  bool has_train = false;
  bool has_valid = false;
  ShardIndex train, valid;
  std::unique_ptr<Source> train_source, valid_source;  // set by open_sources(); train_source only for training

  // The data set that classes, mean and standard deviation are taken from: the training data if there is any.
  const ShardIndex& reference() const { return has_train ? train : valid; }
  ShardIndex& reference() { return has_train ? train : valid; }
};

// Collective. training: of a run that trains, which needs data.train and augments it; otherwise data.valid is needed.
// Measures mean and standard deviation if the files do not contain them. Error(config), Error(data): data.train and
// data.valid do not fit together, or do not fit the configuration.
DataSets index_data_sets(World&, const RunConfig&, bool training);

// Collective.
void open_sources(World&, const RunConfig&, bool training, DataSets&);

}  // namespace millrace
