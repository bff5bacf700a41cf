// The passes of a micro-batch without their names, for comparison with counts by hand.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "millrace/roofline/cuda_fusion.hpp"
#include "millrace/roofline/passes.hpp"

namespace millrace::roofline {

struct Counted {
  PassKind kind;
  Phase phase;
  double bytes, flops;
  int launches;
  bool operator==(const Counted&) const = default;
};
inline void PrintTo(const Counted& c, std::ostream* out) {
  *out << name_of(c.kind) << " phase " << int(c.phase) << ": " << c.bytes << " B, " << c.flops << " FLOP, "
       << c.launches << " launches";
}

inline std::vector<Counted> counted(const Graph& graph, int level, bool first = true,
                                    const batch_norm::OnChipMemory& on_chip = {}) {
  CudaFusionRules rules;
  std::vector<std::string> unfused;
  std::vector<Counted> out;
  for (const Pass& p : micro_batch_passes(rewrite(graph, rules, level, unfused), first, on_chip))
    out.push_back({p.kind, p.phase, p.bytes, p.flops, p.launches});
  return out;
}

}  // namespace millrace::roofline
