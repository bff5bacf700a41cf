// The entry points of training: the functions that the commands in src/app call with a RunConfig.
#pragma once
#include <optional>
#include <string>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/options.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/roofline/gpu.hpp"
#include "millrace/telemetry/timeline.hpp"
#include "millrace/text/tokenizer.hpp"

namespace millrace {

// Trains until the last step (returns Exit::ok) or until a stop is requested (returns Exit::stopped). The account
// measures time from `begun` on. If `evidence` is given, it receives the metrics on which the verdict is based.
// Collective.
Exit train(World&, const RunConfig&, Timeline::Clock::time_point begun = Timeline::Clock::now(),
           BottleneckMetrics* evidence = nullptr);
// A checkpoint of a run: newest or best (by checkpoint.best), or the path of a file.
struct CheckpointChoice {
  std::string run_dir;  // not used with a path
  std::string which = "newest";
};
// The configuration of the run that wrote the checkpoint, as the text of config.cfg, with the path of the checkpoint.
// Error(data): there is none, or it is damaged. Collective.
ConfigFile config_of_checkpoint(World&, const CheckpointChoice&);
// Evaluates a checkpoint on data.valid, or on a part of data.split, and prints loss and metrics. They are written to
// `output`, or if it is empty, of a checkpoint of a run to evaluation.json in its folder. If the newest checkpoint is
// damaged, takes an older one. Error(data): there is none, or the result cannot be written. Error(config): the
// configuration describes another network than the checkpoint. Collective.
Exit evaluate(World&, const RunConfig&, const CheckpointChoice&, const std::string& output = "");
enum class ExportFormat { safetensors, onnx, pt2 };
// Writes the model of a checkpoint to a file for other programs: its weights with PyTorch's names (safetensors), the
// network for inference (onnx), or the archive that it came from with new weights (pt2). Error(data): there is no such
// checkpoint, or the file cannot be written or was written by another program. Error(config): the network has no such
// form. Collective.
Exit export_model(World&, const RunConfig&, const CheckpointChoice&, ExportFormat, const std::string& output);
struct PredictOptions {
  std::string output = "predictions.h5";  // HDF5; a name that ends in .csv: a table of small results
  bool overwrite = false;                 // replace an existing file that predict() wrote
  std::int64_t top_k = 0;                 // of classes: only the most probable ones, instead of all probabilities
  std::string features;                   // the layer whose results are written; "": predictions are
  // automatic: of classes and of labels that are 0 or 1, not of label maps.
  enum class Probabilities { automatic, on, off };
  Probabilities probabilities = Probabilities::automatic;
};
// Writes what the network of a checkpoint makes of each sample of data.valid, which needs no labels, in the order of
// the data. The file gets its name when it is complete. Prints the throughput. Error(config): a language model, or
// options that do not fit the network. Error(data): there is no such checkpoint, the data does not match, or the file
// cannot be written. Error(stopped): a signal asked for it; no file is written. Collective.
Exit predict(World&, const RunConfig&, const CheckpointChoice&, const PredictOptions&);
struct GenerateOptions {
  std::optional<std::string> prompt;  // nullopt: the token <|endoftext|>, or the end of a line if there is none
  std::int64_t tokens = 200;          // to generate; fewer if <|endoftext|> is generated
  double temperature = 0.8;           // 0: always the most probable token
  std::int64_t top_k = 0;             // draw from the most probable tokens only; 0: from all
  std::uint64_t seed = 1;
  std::optional<Tokenizer> tokenizer;  // for checkpoints without one
};
// Continues a text with the language model of a checkpoint, and prints the prompt and the text as it grows.
// Error(config): it is no language model, or several ranks. Error(data): there is no such checkpoint.
Exit generate(World&, const RunConfig&, const CheckpointChoice&, const GenerateOptions&);
// Describes a run without training: the network layer by layer, the memory plan, the buckets and the steps per epoch.
// Collective.
std::string describe_plan(World&, const RunConfig&);
// The passes of a training step on a GPU with their bytes and predicted times, as a table or as JSON. Needs no GPU.
// run.device is ignored. Collective.
std::string describe_gpu_step(World&, const RunConfig&, const roofline::GpuModel&, bool json);

}  // namespace millrace
