// The keys of muon as tests/parity/muon.py records them.
#pragma once
#include <nlohmann/json.hpp>

#include "millrace/ops/optimizer.hpp"

namespace millrace::test {

// Without counts and segments.
inline OptimizerSpec muon_spec(const nlohmann::json& keys) {
  using enum OptimizerSpec::MuonScale;
  OptimizerSpec s;
  s.kind = OptimizerSpec::Kind::muon;
  s.momentum = keys["muon_momentum"];
  s.nesterov = keys["muon_nesterov"];
  const std::string scale = keys["muon_scale"];
  s.muon_scale = scale == "original" ? original : scale == "spectral_unclamped" ? spectral_unclamped : match_rms_adamw;
  s.beta1 = keys["beta1"];
  s.beta2 = keys["beta2"];
  s.epsilon = keys["epsilon"];
  return s;
}

}  // namespace millrace::test
