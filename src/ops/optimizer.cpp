#include "millrace/ops/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

void check(const OptimizerSpec& spec) {
  std::int64_t end = 0;
  for (const auto& s : spec.segments) {
    if (s.begin < end || s.begin % 4 || s.count < 0 || (s.begin + s.count + 3) / 4 * 4 > spec.count)
      fail(Exit::internal,
           "optimizer: segment [{}, +{}) overlaps another, does not begin at a multiple of 4, or ends beyond {}",
           s.begin, s.count, spec.count);
    if (s.rows > 0 && s.rows * s.columns != s.count)
      fail(Exit::internal, "optimizer: a segment of {} elements is not a matrix of {} x {}", s.count, s.rows,
           s.columns);
    end = s.begin + s.count;
  }
  end = 0;
  for (const auto& s : spec.shards) {
    if (s.begin < end || s.begin % spec.chunk_size || s.count % spec.chunk_size || s.begin + s.count > spec.count)
      fail(Exit::internal, "optimizer: shard [{}, +{}) overlaps another, is not aligned to {}, or ends beyond {}",
           s.begin, s.count, spec.chunk_size, spec.count);
    end = s.begin + s.count;
    if (s.begin < spec.whole_master && end > spec.whole_master)
      fail(Exit::internal, "optimizer: shard [{}, +{}) crosses the end of the whole master at {}", s.begin, s.count,
           spec.whole_master);
  }
}

}  // namespace

bool OptimizerSpec::has_matrices() const {
  return kind == Kind::muon && std::ranges::any_of(segments, [](const OptimizerSegment& s) { return s.rows > 0; });
}

bool OptimizerSpec::gathers_updates() const { return !shards.empty() && has_matrices(); }

OptimizerChunks split_into_chunks(const OptimizerSpec& spec) {
  check(spec);
  OptimizerChunks out;
  std::int32_t number = 0;
  std::size_t shard = 0;
  std::int64_t kept = 0;      // elements of the shards before this one
  std::int64_t in_whole = 0;  // elements of the shards before whole_master
  for (const auto& s : spec.shards) in_whole += s.begin < spec.whole_master ? s.count : 0;
  for (const auto& segment : spec.segments) {
    out.first.push_back(number);
    const std::int64_t end = segment.begin + segment.count;
    for (std::int64_t at = segment.begin, next; at < end; at = next, ++number) {
      next = std::min(end, (at / spec.chunk_size + 1) * spec.chunk_size);
      while (shard < spec.shards.size() && spec.shards[shard].begin + spec.shards[shard].count <= at)
        kept += spec.shards[shard++].count;
      const bool all = spec.shards.empty();
      if (!all && (shard == spec.shards.size() || at < spec.shards[shard].begin)) continue;
      const std::int64_t moments = all ? at : kept + at - spec.shards[shard].begin;
      const std::int64_t master = all || at < spec.whole_master ? at : spec.whole_master + moments - in_whole;
      out.owned.push_back({at, moments, master, std::int32_t(next - at), std::int32_t(out.first.size() - 1), number,
                           segment.weight_decay, segment.lr_factor});
    }
  }
  out.first.push_back(number);
  return out;
}

float muon_factor(OptimizerSpec::MuonScale scale, const OptimizerSegment& s) {
  const double rows = double(s.rows), columns = double(s.columns);
  switch (scale) {
    case OptimizerSpec::MuonScale::match_rms_adamw:
      break;
    case OptimizerSpec::MuonScale::original:
      return float(std::sqrt(std::max(1.0, rows / columns)));
    case OptimizerSpec::MuonScale::spectral_unclamped:
      return float(std::sqrt(rows / columns));
  }
  return float(0.2 * std::sqrt(std::max(rows, columns)));
}

NewtonSchulz::Workspace NewtonSchulz::workspace(const OptimizerSpec& spec) {
  constexpr std::int64_t alignment = 64;
  Workspace out;
  for (const OptimizerSegment& s : spec.segments) {
    const std::int64_t side = std::min(s.rows, s.columns);
    out.matrix = std::max(out.matrix, (s.rows * s.columns + alignment - 1) / alignment * alignment);
    out.gram = std::max(out.gram, (side * side + alignment - 1) / alignment * alignment);
  }
  return out;
}

std::int64_t square_sum_count(const OptimizerSpec& spec) {
  return split_into_chunks(spec).all() * (spec.by_segment() ? 2 : 1);
}

}  // namespace millrace
