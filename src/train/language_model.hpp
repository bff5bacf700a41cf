// LanguageModel: the network of a checkpoint, as a function from tokens to the logits of the token that follows.
//
// Nothing is kept between calls: each call computes all positions of a window. Short texts use programs of shorter
// windows, which share the weights.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "millrace/config/run_config.hpp"
#include "millrace/train/session/network.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

class LanguageModel {
 public:
  // Loads the weights. config: of the checkpoint; run.device and run.precision may differ. Error(config): the network
  // predicts no tokens, or what it predicts at a position depends on later ones. Error(data): it cannot be loaded.
  LanguageModel(World&, const RunConfig&, const CheckpointModel&);

  std::int64_t window() const { return spec_.batch.sample[0]; }         // tokens that it reads at most
  std::int64_t vocabulary() const { return spec_.model.outputs; }       // tokens are below it
  std::int64_t shortest() const { return label_each_ ? 1 : window(); }  // tokens that it needs at least
  // The logits of the token after `tokens`, of which the last window() count. Valid until the next call.
  // tokens.size() >= shortest().
  std::span<const float> next(std::span<const std::int32_t> tokens);

 private:
  struct Short {  // a program of a shorter window
    std::unique_ptr<Program> program;
    Buffer arena, packed_weights;
  };
  void add_short_programs();
  void require_causal();
  std::span<const float> run(Program&, std::span<const std::int32_t> tokens, std::int32_t padding);

  ExecutionContext compute_;
  NetworkSpec spec_;
  bool label_each_ = true;  // a prediction at each position; otherwise one for the window
  std::unique_ptr<Network> network_;
  std::map<std::int64_t, Short> short_;  // by window
  Buffer x_, y_, ids_, converted_;
  std::vector<char> stored_;  // tokens as the network reads them
  std::vector<float> logits_;
};

}  // namespace millrace
