// A training of a linear network whose results a test can compute by hand.
#pragma once
#include <gtest/gtest.h>

#include "millrace/base/files.hpp"
#include "train/runs.hpp"

namespace millrace::test {

// A linear network on samples of three numbers, after one step. y: `outputs` values or one label a sample.
struct LinearRun : TemporaryFolder {
  static constexpr std::int64_t rows = 53, features = 3;
  std::vector<float> x, y;
  RunConfig config;

  template <class Y>
  LinearRun(DType y_type, std::vector<Y> stored, Loss loss) : y(stored.begin(), stored.end()) {
    for (std::int64_t i = 0; i < rows * features; ++i) x.push_back(float(i * 37 % 101) / 50 - 1);
    const auto outputs = std::int64_t(stored.size()) / rows;
    io::File file = io::File::create((path / "data.h5").string());
    file.create_dataset("/x", DType::f32, {rows, features});
    file.write_rows("/x", 0, rows, DType::f32, x.data());
    file.create_dataset("/y", y_type, outputs == 1 ? std::vector{rows} : std::vector{rows, outputs});
    file.write_rows("/y", 0, rows, y_type, stored.data());
    config.data.train = config.data.valid = {(path / "data.h5").string()};
    config.data.normalize = false;
    config.data.workers = 1;
    config.model.name = ModelName::layers;
    config.model.layers = {"linear outputs"};
    config.model.loss = loss;
    config.train.steps = 1;
    config.train.global_batch = 20;
    config.run.threads = 1;
    config.run.dir = (path / "run").string();
  }
  void train(int ranks) const {
    std::filesystem::remove_all(path / "run");
    run_thread_world(ranks, [&](World& world) { EXPECT_EQ(millrace::train(world, config), Exit::ok); });
  }
  nlohmann::json summary() const { return nlohmann::json::parse(read_file(path / "run" / "summary.json")); }
  nlohmann::json last_validation() const {
    std::string lines = read_file(path / "run" / "validation.jsonl");
    lines.pop_back();
    return nlohmann::json::parse(lines.substr(lines.rfind('\n') + 1));
  }
  // By row and output.
  std::vector<std::vector<double>> predictions() const {
    const auto tensors = tensors_of(path / "run");
    const auto &weight = tensors.at("/parameters/linear1.weight"), &bias = tensors.at("/parameters/linear1.bias");
    std::vector<std::vector<double>> out(rows);
    for (std::size_t r = 0; r < out.size(); ++r)
      for (std::size_t o = 0; o < bias.size(); ++o) {
        double sum = double(bias[o]);
        for (std::size_t f = 0; f < features; ++f)
          sum += double(weight[o * features + f]) * double(x[r * features + f]);
        out[r].push_back(sum);
      }
    return out;
  }
};

inline std::vector<std::int32_t> labels_of(std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < LinearRun::rows; ++i) labels.push_back(i % 11 == 5 ? -1 : std::int32_t(i * 7 / 3 % classes));
  return labels;
}

inline std::vector<float> targets(std::int64_t outputs) {
  std::vector<float> out;
  for (int i = 0; i < LinearRun::rows * outputs; ++i) out.push_back(float(i * 13 % 7) / 3);
  return out;
}

}  // namespace millrace::test
