// Writes the model of a checkpoint for other programs. The weights are the averages, if the checkpoint has some. Each
// file replaces one that millrace wrote. None of the functions is collective. Error(data): the file cannot be written,
// such as on a full disk, another program wrote the one that is there, or the checkpoint is damaged.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "millrace/weights/safetensors.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {

// Whether millrace wrote the file, with the configuration of its network.
bool has_configuration(const SafetensorsFile&);

// In the format safetensors with PyTorch's names, and what else the checkpoint says of the model as metadata.
void export_safetensors(const CheckpointModel&, const NetworkSpec&, const std::filesystem::path& out);
// What export_safetensors() wrote besides the weights. Error(data): another program wrote the file, or it is damaged.
CheckpointModel read_safetensors_model(const std::filesystem::path&);

// The network in the format ONNX (onnx/onnx_export.hpp), with its normalisation and the inverse of that of its targets.
// pairs: the run had data.sample = pair. Error(config): operations without a form in ONNX, or the build has no ONNX.
void export_onnx(const CheckpointModel&, const NetworkSpec&, bool pairs, const std::filesystem::path& out);

// The archive that the network came from, with these weights. The spec must have one (ModelSpec::exported).
void export_archive(const CheckpointModel&, const NetworkSpec&, const std::filesystem::path& out);

// What files say of a model besides its weights, by the keys of their metadata: millrace (the version), millrace.step,
// millrace.config and millrace.model.
std::map<std::string, std::string> export_metadata(const CheckpointModel&);

// The weights of a model that a checkpoint or a .safetensors file of millrace holds. graph: of the spec.
std::unique_ptr<WeightSource> open_model_weights(const CheckpointModel&, const NetworkSpec&, const Graph& graph);

}  // namespace millrace
