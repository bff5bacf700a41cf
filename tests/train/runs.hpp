// Training runs inside a test: ranks are threads, the data is synthetic, and each run has its own folder.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/train/commands.hpp"
#include "support/temporary_folder.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace millrace::test {

// The state of a run after so many steps.
inline RunState at_step(std::int64_t step) {
  RunState r;
  r.step = step;
  return r;
}

// A small network with or without batch norm.
inline RunConfig small_run(bool batch_norm, const std::string& rows = "131") {
  RunConfig c;
  c.data.train = {"synthetic:images:rows=" + rows + ",shape=9x8x3,classes=4"};
  c.data.augment = true;
  c.data.crop_pad = 1;
  c.data.workers = 1;
  c.model.name = ModelName::layers;
  c.model.layers = {"conv 8 3x3 pad=same", "relu", "globalpool", "linear outputs"};
  if (batch_norm) c.model.layers.insert(c.model.layers.begin() + 1, "batchnorm");
  c.train.epochs = 2;
  c.train.global_batch = 32;
  c.optim.lr = 0.05;
  c.run.threads = 1;
  return c;
}

// Two batch norms that are fused with the convolutions around them at level 2, forward and backward. At level 3 the
// first one is applied by the second convolution.
inline RunConfig fused_run(int level = 2) {
  RunConfig c = small_run(true);
  c.model.layers.insert(c.model.layers.begin() + 3, {"conv 8 3 pad=same bias=off", "batchnorm", "relu"});
  c.model.fusion = level;
  return c;
}

using Tensors = std::map<std::string, std::vector<float>>;

// The tensors of the last checkpoint of a run.
inline Tensors tensors_of(const std::filesystem::path& run_folder) {
  const io::File file = io::File::open(CheckpointStore::list(run_folder / "checkpoints").back());
  Tensors out;
  for (const std::string& name : file.datasets()) {
    if (name == "/model") continue;  // text
    const auto shape = file.info(name).shape;
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    out[name].resize(std::size_t(count));
    file.read_rows(name, 0, shape[0], DType::f32, out[name].data());
  }
  return out;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The lines of metrics.jsonl in a run folder.
inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run_folder) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(run_folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The lines of metrics.jsonl after a run on the given number of ranks.
inline std::vector<nlohmann::json> run(RunConfig c, int ranks, std::int64_t micro_batch) {
  const TemporaryFolder folder;
  c.run.dir = (folder.path / "run").string();
  c.train.micro_batch = micro_batch;
  run_thread_world(ranks, [&](World& world) { train(world, c); });
  return metrics_of(folder.path / "run");
}

}  // namespace millrace::test
