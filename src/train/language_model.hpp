// LanguageModel: the network of a checkpoint, as a function from tokens to the logits of the token that follows.
//
// Keys and values of attentions are kept in a cache (model/graph.hpp: with_cache). A call computes only the positions
// from the first token that differs from those of the call before. Texts longer than the window are computed as a whole
// window, because their positions change with each token.
//
// Without a cache, each call computes a whole window. Short texts use programs of shorter windows.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/config/run_config.hpp"
#include "millrace/train/session/network.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

class LanguageModel {
 public:
  // Loads the weights. config: of the checkpoint; run.device and run.precision may differ. Error(config): the network
  // predicts no tokens, or what it predicts at a position depends on later ones. Error(data): it cannot be loaded.
  // cache: false for comparisons. Networks whose layers need all positions at once have none; a line of the log says
  // so.
  LanguageModel(World&, const RunConfig&, const CheckpointModel&, bool cache = true);

  std::int64_t window() const { return spec_.batch.sample[0]; }    // tokens that it reads at most
  std::int64_t vocabulary() const { return spec_.model.outputs; }  // tokens are below it
  bool cached() const { return cached_; }
  std::int64_t shortest() const { return label_each_ ? 1 : window(); }  // tokens that it needs at least
  // The logits of the token after `tokens`, of which the last window() count. Valid until the next call.
  // tokens.size() >= shortest().
  std::span<const float> next(std::span<const std::int32_t> tokens);

 private:
  struct Part {  // a program of fewer positions than the window
    std::unique_ptr<Program> program;
    Buffer arena, packed_weights;
  };
  void require_causal();
  std::optional<Graph> graph_of_part(std::int64_t positions, const Graph& whole) const;
  void add_program(std::int64_t positions, Graph);
  std::string add_cached_programs(const Graph& whole);
  void add_short_programs(const Graph& whole);
  std::span<const float> next_cached(std::span<const std::int32_t> tokens);
  std::span<const float> run(Program&, std::span<const std::int32_t> tokens, std::int32_t padding = 0,
                             std::int64_t position = 0);

  ExecutionContext compute_;
  NetworkSpec spec_;
  bool label_each_ = true;  // a prediction at each position; otherwise one for the window
  std::unique_ptr<Network> network_;
  std::map<std::int64_t, Part> parts_;  // by positions
  bool cached_ = false;                 // the parts have a cache
  std::vector<std::int32_t> in_cache_;  // tokens whose keys and values are there
  Buffer cache_, x_, y_, ids_, converted_;
  std::vector<char> stored_;  // tokens as the network reads them
  std::vector<float> logits_;
};

}  // namespace millrace
