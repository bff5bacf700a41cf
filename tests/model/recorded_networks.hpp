// The networks of tests/parity/recorded/networks.json: their specifications, batches and weights, which
// tests/parity/weights.py computes by the same formula.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "support/program_fixture.hpp"
#include "support/recorded.hpp"

namespace millrace::test {

using nlohmann::json;

inline std::string title(const json& c) {
  return fmt::format("{} {} {}", c["model"].get<std::string>(), c["sizes"].dump(), c["sample"].dump());
}

inline ModelSpec spec_of(const json& c) {
  ModelSpec spec;
  spec.name = c["model"];
  spec.outputs = c["outputs"];
  spec.tokens = c["sample"].size() == 1;
  spec.input.scale = 1.0f / 255;
  const auto size = [&](const char* key, auto& value) {
    if (c["sizes"].contains(key)) c["sizes"][key].get_to(value);
  };
  size("depth", spec.depth);
  size("stem", spec.stem);
  size("hidden", spec.hidden);
  size("transposed", spec.transposed);
  size("blocks", spec.blocks);
  size("width", spec.width);
  size("heads", spec.heads);
  size("key_heads", spec.key_heads);
  size("feed_forward", spec.feed_forward);
  size("patch", spec.patch);
  if (c.contains("layers")) spec.layers = c["layers"];
  spec.own_losses = has_loss_lines(spec.layers);
  if (spec.own_losses) spec.targets = {{"kind", 0, 1, spec.outputs}, {"energy", 1, 2, 0}};
  if (spec.name == "cosmoflow") spec.pointwise_loss = PointwiseLossSpec::Kind::mse;
  return spec;
}

inline ModelBatch batch_of(const json& c) {
  ModelBatch batch;
  batch.rows = c["rows"];
  for (const std::int64_t extent : c["sample"]) batch.sample.dims[std::size_t(batch.sample.rank++)] = extent;
  const bool tokens = batch.sample.rank == 1;
  batch.x_dtype = tokens ? DType::u16 : DType::u8;
  const bool maps = c["model"] == "unet";
  if (tokens || maps) batch.target = batch.sample;
  if (maps) --batch.target.rank;
  if (c["model"] == "cosmoflow") {
    batch.target = {c["outputs"].get<std::int64_t>()};
    batch.labels = false;
  }
  if (spec_of(c).own_losses) {
    batch.target = {3};
    batch.labels = false;
  }
  return batch;
}

// Factors lie around 1. The last ones of a bottleneck lie around 0: see weights.py.
inline bool is_factor(const std::string& name) { return name.ends_with(".weight") && !name.ends_with(".bn3.weight"); }

// A label and two targets a row.
inline void fill_columns(ProgramFixture& f, const Sequence& labels, const Sequence& targets, std::int64_t classes) {
  for (std::size_t i = 0; i < f.y.size(); ++i) {
    const auto row = std::int64_t(i / 3), column = std::int64_t(i % 3);
    f.y[i] = column == 0 ? std::int32_t(labels.below(classes, row))
                         : std::bit_cast<std::int32_t>(float(targets.uniform(2 * row + column - 1)));
  }
}

inline void fill(ProgramFixture& f, const json& c) {
  const Graph& graph = f.program->graph();
  const std::string name = c["model"];
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    const Sequence sequence(parameter.name);
    const double scale = 1 / std::sqrt(double(parameter.shape.row_count()));
    for (std::int64_t i = 0; i < parameter.shape.count(); ++i) {
      const double u = sequence.uniform(i);
      f.master[std::size_t(f.layout->parameters[p].begin + i)] =
          float(parameter.shape.rank > 1 ? scale * u : 0.1 * u + double(is_factor(parameter.name)));
    }
  }
  const ModelBatch batch = batch_of(c);
  const std::int64_t values = batch.rows * batch.sample.count(), outputs = c["outputs"];
  const Sequence samples(name + " x"), labels(name + " y");
  for (std::int64_t i = 0; i < values; ++i)
    if (batch.x_dtype == DType::u8)
      f.x[std::size_t(i)] = std::uint8_t(samples.below(256, i));
    else
      reinterpret_cast<std::uint16_t*>(f.x.data())[i] = std::uint16_t(samples.below(outputs, i));
  if (spec_of(c).own_losses) return fill_columns(f, labels, Sequence(name + " energy"), outputs);
  for (std::size_t i = 0; i < f.y.size(); ++i)
    f.y[i] = batch.labels ? std::int32_t(labels.below(outputs, std::int64_t(i)))
                          : std::bit_cast<std::int32_t>(float(labels.uniform(std::int64_t(i))));
  if (c["sizes"].contains("ignored")) std::replace(f.y.begin(), f.y.end(), c["sizes"]["ignored"].get<int>(), -1);
}

}  // namespace millrace::test
