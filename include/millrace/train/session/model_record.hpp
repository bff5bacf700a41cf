// ModelRecord: what a checkpoint holds of a model besides its weights. With it, a checkpoint can be evaluated without
// the training data, and a resumed run cannot become another function of the same weights.
#pragma once
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// One of several inputs, as the network was trained with it.
struct InputRecord {
  std::string name;
  Shape sample;
  DType type = DType::u8;
  bool channels_first = false;
  ValueConversion values;
};

struct ModelRecord {
  std::string version;                // of the millrace that wrote it
  int function_version = 0;           // function_text_version of that millrace
  std::vector<std::string> function;  // describe_function(), with normalisation
  // The training data. values.mean and values.std are those that the network was trained with, measured or stored.
  Shape sample;
  DType sample_type = DType::u8;
  bool channels_first = false;
  std::vector<InputRecord> inputs;                    // several inputs; empty: one
  std::vector<ConcatenatedPart> parts, target_parts;  // of x and of y
  std::string target_name;                            // data.y; "": an older millrace wrote the record
  bool labels = true;
  Shape target;
  Classes classes;
  ValueConversion values;
  std::uint32_t split_crc32c = 0;  // RowSplit::crc32c of data.split; 0: there was none
  std::string network;             // model.name = pt2: pt2::program_text() of the archive; "": it has to be read again
  std::string tokenizer;           // of the training data, as text (text/tokenizer.hpp); "": it has none
};

// An index without files that describes the training data of a model.
ShardIndex training_index(const ModelRecord&);

// Whether the lines of the function can be compared with those of this version.
bool has_comparable_function(const ModelRecord&);

// How two functions differ, in words, or "": "'conv1 = ...' then, 'conv1 = ...' now".
std::string function_difference(const std::vector<std::string>& then, const std::vector<std::string>& now);

}  // namespace millrace
