// Small training runs on a device that captures its steps, and the results that they write.
#pragma once
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "millrace/io/hdf5.hpp"
#include "train/runs.hpp"

namespace millrace::test {

// Configures the fake GPU. quick: operations run the fastest implementation, because only their order is tested.
// eager_copies: copies run as early as possible, otherwise as late as possible. Returns false on a real GPU, where it
// has no effect.
bool configure_fake_gpu(bool quick, bool eager_copies);
struct QuickRuns : testing::Test {
  void SetUp() override { configure_fake_gpu(true, false); }
  void TearDown() override { configure_fake_gpu(false, false); }
};

// Four epochs, each with three full steps, a short step of one and a half micro-batches, and an evaluation.
inline RunConfig graphed_run(int accumulation) {
  RunConfig c;
  const int rows = 3 * 4 * accumulation + 6;
  c.data.train = {fmt::format("synthetic:images:rows={},shape=6x5x3,classes=4", rows)};
  c.data.valid = {"synthetic:images:rows=14,shape=6x5x3,classes=4"};
  c.data.augment = true;
  c.data.crop_pad = 1;
  c.data.workers = 1;
  c.model.name = ModelName::layers;
  c.model.layers = {"conv 4 3x3 pad=same", "batchnorm", "relu", "dropout 0.2", "globalpool", "linear outputs"};
  c.train.epochs = 4;
  c.train.micro_batch = 4;
  c.train.global_batch = 4 * accumulation;
  c.optim.lr = 0.05;
  c.optim.schedule = LrSchedule::constant;  // does not depend on where a run ends
  c.run.threads = 1;
  c.run.deterministic = true;
  c.cuda.autotune = false;
  c.log.speed_of_light = false;  // measures with operations of its own
  c.run.device = DeviceChoice::cuda;
  return c;
}

struct Outcome {
  std::vector<std::string> steps;  // the values in metrics.jsonl that do not depend on time
  std::string evaluation;          // of the last evaluation
  std::map<std::string, std::vector<float>> weights, moments;
  bool operator==(const Outcome&) const = default;
};

inline std::map<std::string, std::vector<float>> tensors_of(const io::File& file, const std::string& group) {
  std::map<std::string, std::vector<float>> out;
  for (const std::string& name : file.datasets()) {
    if (!name.starts_with(group)) continue;
    const auto shape = file.info(name).shape;
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    auto& values = out[name];
    values.resize(std::size_t(count));
    file.read_rows(name, 0, shape.empty() ? 1 : shape[0], DType::f32, values.data());
  }
  return out;
}

inline Outcome outcome_of(RunConfig c, int ranks, const std::filesystem::path& dir) {
  c.run.dir = dir.string();
  run_thread_world(ranks, [&](World& world) { train(world, c); });
  Outcome out;
  std::ifstream in(dir / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto j = nlohmann::json::parse(line);
    out.steps.push_back(fmt::format("{} loss {} norm {} scale {} skipped {}", j["step"].dump(), j["loss"].dump(),
                                    j["grad_norm"].dump(), j["loss_scale"].dump(), j["skipped"].dump()));
  }
  std::ifstream summary(dir / "summary.json");
  const auto j = nlohmann::json::parse(summary);
  out.evaluation = fmt::format("{} {} {}", j["valid_loss"].dump(), j["valid_accuracy"].dump(), j["valid_top5"].dump());
  std::filesystem::path newest;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "checkpoints"))
    if (entry.path().extension() == ".h5") newest = std::max(newest, entry.path());
  const io::File file = io::File::open(newest.string());
  out.weights = tensors_of(file, "/parameters");
  out.moments = tensors_of(file, "/moment");
  return out;
}
inline Outcome outcome_of(const RunConfig& c, int ranks = 1) {
  const TemporaryFolder folder;
  return outcome_of(c, ranks, folder.path / "run");
}

}  // namespace millrace::test
