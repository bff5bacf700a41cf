// Converts the keys data.* to the Spec of the input pass, which normalizes, crops and augments samples on the device.
#pragma once
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/model/zoo.hpp"
#include "millrace/train/session/model_record.hpp"

namespace millrace {

// The numbers of the stored channels that data.channels selects, from 0; empty: all. Error(config): data.channels is
// invalid.
std::vector<std::int64_t> used_channels(const ValueOptions&, const ShardIndex&);
// The InputSpec, without the members that depend on the graph. Error(config): a key is invalid or does not match the
// data; the message names the key.
InputSpec input_spec(const DataConfig&, const ShardIndex&, std::uint64_t seed);
// Those of several inputs; empty: there is one.
std::vector<NamedInput> named_inputs(const DataConfig&, const ShardIndex&, std::uint64_t seed);
// Whether the network has several inputs: lines `input`, or a network of PyTorch with more than one. Those of a
// checkpoint (model, or null) are known from there. Collective, and the same on every rank. Error(config), Error(data):
// model.file cannot be read.
bool names_inputs(World&, const RunConfig&, const ModelRecord* model);
// Whether mean and standard deviation must be measured, because neither the configuration nor the files contain them.
bool needs_statistics(const ValueOptions&, const ShardIndex&);

}  // namespace millrace
