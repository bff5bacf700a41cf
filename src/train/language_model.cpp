#include "train/language_model.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/train/session/make_compute.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/session/network_spec.hpp"

namespace millrace {
namespace {

constexpr std::int64_t shortest_program = 16;
// Positions of the programs with a cache: for a further token, a short prompt, and parts of a long one.
constexpr std::int64_t part_lengths[] = {1, 16, 128};

// The network as the checkpoint's configuration gives it for its own data, without reading data.
NetworkSpec spec_of(World& world, const RunConfig& config, const CheckpointModel& model) {
  if (!model.record)
    fail(Exit::config, "{} was written by a version that did not store its model. evaluate it with -c, or train again",
         model.path.string());
  if (config.data.sample != SampleKind::tokens || !model.record->labels)
    fail(Exit::config,
         "{} is not a language model (data.sample is not tokens). generate needs one that predicts tokens",
         model.path.string());
  return trained_network_spec(world, config, *model.record);
}

// Whether the parameters of the shorter graph are the first rows of those of the longer one.
bool same_parameters(const Graph& shorter, const Graph& longer) {
  const auto begins = [](const Parameter& a, const Parameter& b) {
    return a.name == b.name && a.shape.rank == b.shape.rank && a.shape[0] <= b.shape[0] &&
           std::equal(a.shape.dims.begin() + 1, a.shape.dims.begin() + a.shape.rank, b.shape.dims.begin() + 1);
  };
  return std::ranges::equal(shorter.parameters, longer.parameters, begins);
}

// Of a network of PyTorch, a part of one position may have become other operations than the whole. Other extents for
// the same elements do not matter.
bool same_operations(const Graph& shorter, const Graph& longer) {
  const auto kinds = [](const Graph& graph) {
    std::vector<std::size_t> out;
    for (const Node& node : graph.nodes)
      if (!std::holds_alternative<ReshapeSpec>(node.spec)) out.push_back(node.spec.index());
    return out;
  };
  return kinds(shorter) == kinds(longer);
}

}  // namespace

LanguageModel::LanguageModel(World& world, const RunConfig& config, const CheckpointModel& model, bool cache)
    : compute_(make_execution_context(world, config)), spec_(spec_of(world, config, model)) {
  label_each_ = spec_.batch.target.rank == 1;
  network_ = std::make_unique<Network>(compute_, spec_);
  load_model(world, compute_, spec_, *network_, model);
  Device& device = *compute_.device;
  const auto buffer = [&](std::size_t bytes) { return Buffer(device, MemoryKind::device, bytes); };
  const std::size_t positions = std::size_t(window());
  stored_.resize(positions * size_of(spec_.batch.x_dtype));
  x_ = buffer(stored_.size());
  y_ = buffer(positions * sizeof(std::int32_t));
  ids_ = buffer(sizeof(std::int64_t));
  converted_ = buffer(std::size_t(vocabulary()) * sizeof(float));
  logits_.resize(std::size_t(vocabulary()));
  const std::vector<std::int32_t> no_labels(positions, -1);
  device.copy_to_device(Stream::compute, y_.data(), no_labels.data(), positions * sizeof(std::int32_t));
  device.synchronize();
  if (!label_each_) return;
  require_causal();
  const Graph whole = graph_of(spec_, 1, Mode::infer);
  const std::string reason = cache ? add_cached_programs(whole) : "";
  if (cached_) return;
  if (cache) log::info(fmt::format("no key-value cache: {}. each token computes a whole window", reason));
  add_short_programs(whole);
}

void LanguageModel::require_causal() {
  if (window() < 2 || vocabulary() < 2) return;
  Program& program = network_->eval_program(1);
  const std::int32_t token = 0;
  const auto with_padding = [&](std::int32_t padding) {
    const auto logits = run(program, {&token, 1}, padding);
    return std::vector<float>(logits.begin(), logits.end());
  };
  if (with_padding(0) != with_padding(1))
    fail(Exit::config,
         "the network cannot generate text: its results depend on later tokens (a layer is not causal, such as "
         "attention without `causal`). train one that reads earlier tokens only");
}

// nullopt: its layers fit the whole window only.
std::optional<Graph> LanguageModel::graph_of_part(std::int64_t positions, const Graph& whole) const {
  NetworkSpec spec = spec_;
  spec.batch.sample = spec.batch.target = {positions};
  try {
    Graph graph = graph_of(spec, 1, Mode::infer);
    if (same_parameters(graph, whole)) return graph;
  } catch (const Error&) {
  }
  return std::nullopt;
}

void LanguageModel::add_program(std::int64_t positions, Graph graph) {
  CompiledGraph compiled = compile_graph(*compute_.backend, std::move(graph), spec_.fusion);
  const auto buffer = [&](std::size_t bytes) {
    return Buffer(*compute_.device, MemoryKind::device, std::max<std::size_t>(64, bytes));
  };
  if (!cache_.data()) cache_ = buffer(compiled.plan.cache_bytes);
  MR_CHECK(compiled.plan.cache_bytes <= cache_.bytes(), "the caches of two programs differ");
  Part& part = parts_[positions];
  part.arena = buffer(compiled.plan.arena_bytes);
  part.packed_weights = buffer(compiled.plan.packed_weight_bytes);
  ProgramMemory memory = network_->program_memory();
  memory.arena = part.arena.data();
  memory.packed_weights = part.packed_weights.data();
  memory.cache = cache_.data();
  part.program = std::make_unique<Program>(std::move(compiled), network_->layout(), memory);
  part.program->repack_weights();
}

// Returns why there is no cache; "": there is one.
std::string LanguageModel::add_cached_programs(const Graph& whole) {
  if (const std::string reason = why_not_cached(whole); !reason.empty()) return reason;
  for (const std::int64_t length : part_lengths) {
    const std::int64_t positions = std::min(length, window());
    if (parts_.contains(positions)) continue;
    auto graph = graph_of_part(positions, whole);
    if (!graph || !same_operations(*graph, whole)) return "the layers fit the whole window only";
    add_program(positions, with_cache(std::move(*graph), whole));
  }
  cached_ = true;
  return "";
}

void LanguageModel::add_short_programs(const Graph& whole) {
  parts_.clear();
  for (std::int64_t length = window() / 4; length >= shortest_program; length /= 4) {
    auto graph = graph_of_part(length, whole);
    if (!graph) return;
    add_program(length, std::move(*graph));
  }
}

std::span<const float> LanguageModel::next(std::span<const std::int32_t> tokens) {
  MR_CHECK(std::int64_t(tokens.size()) >= shortest(), "too few tokens");
  if (cached_ && std::int64_t(tokens.size()) <= window()) return next_cached(tokens);
  tokens = tokens.last(std::min(tokens.size(), std::size_t(window())));
  const auto fits = cached_ ? parts_.end() : parts_.lower_bound(std::int64_t(tokens.size()));
  return run(fits != parts_.end() ? *fits->second.program : network_->eval_program(1), tokens);
}

std::span<const float> LanguageModel::next_cached(std::span<const std::int32_t> tokens) {
  const std::int64_t count = std::int64_t(tokens.size());
  const std::int64_t same = std::ranges::mismatch(tokens, in_cache_).in1 - tokens.begin();
  in_cache_.assign(tokens.begin(), tokens.end());
  for (std::int64_t begin = std::min(same, count - 1);;) {
    const auto fits = parts_.lower_bound(count - begin);
    const auto& [positions, part] = fits != parts_.end() ? *fits : *parts_.rbegin();
    begin = std::min(begin, window() - positions);  // positions end with the window: computes some of them again
    const std::int64_t end = std::min(begin + positions, count);
    const auto logits = run(*part.program, tokens.subspan(std::size_t(begin), std::size_t(end - begin)), 0, begin);
    if (end == count) return logits;
    begin = end;
  }
}

std::span<const float> LanguageModel::run(Program& program, std::span<const std::int32_t> tokens, std::int32_t padding,
                                          std::int64_t position) {
  Device& device = *compute_.device;
  const Graph& graph = program.graph();
  const std::size_t width = size_of(spec_.batch.x_dtype), positions = std::size_t(graph.values[Graph::x].shape.count());
  for (std::size_t i = 0; i < positions; ++i) {
    const std::int32_t token = i < tokens.size() ? tokens[i] : padding;
    std::memcpy(stored_.data() + i * width, &token, width);
  }
  device.copy_to_device(Stream::compute, x_.data(), stored_.data(), positions * width);
  network_->host_state().position = std::uint64_t(position);
  network_->write_step(0);
  network_->push_step(0);
  const auto tensor = [&](int value, const Buffer& buffer) {
    return Tensor{buffer.data(), graph.values[std::size_t(value)].dtype, graph.values[std::size_t(value)].shape};
  };
  program.forward(tensor(Graph::x, x_), tensor(Graph::y, y_), tensor(Graph::ids, ids_), true);
  const Tensor& prediction = program.prediction();
  const std::size_t row = label_each_ ? tokens.size() - 1 : 0;
  const char* logits = prediction.as<char>() + row * std::size_t(prediction.shape[-1]) * size_of(prediction.dtype);
  if (prediction.dtype != DType::f32) {
    compute_.backend->convert(converted_.data(), DType::f32, logits, prediction.dtype, vocabulary());
    logits = converted_.as<char>();
  }
  device.copy_to_host(Stream::compute, logits_.data(), logits, logits_.size() * sizeof(float));
  device.synchronize();
  return logits_;
}

}  // namespace millrace
