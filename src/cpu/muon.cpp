#include "cpu/muon.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/common/parallel.hpp"
#include "cpu/orthogonal_products.hpp"

namespace millrace::cpu {
namespace {

// The momentum of a chunk, and the update before the Newton-Schulz steps.
MR_TARGET_CLONES void advance(float* __restrict update, float* __restrict v, const float* __restrict g, std::int64_t n,
                              float unscale, float momentum) {
  for (std::int64_t i = 0; i < n; ++i) {
    v[i] = momentum * v[i] + (1 - momentum) * (g[i] * unscale);
    update[i] = v[i];
  }
}
MR_TARGET_CLONES void advance_nesterov(float* __restrict update, float* __restrict v, const float* __restrict g,
                                       std::int64_t n, float unscale, float momentum) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = g[i] * unscale;
    v[i] = momentum * v[i] + (1 - momentum) * d;
    update[i] = momentum * v[i] + (1 - momentum) * d;
  }
}
MR_TARGET_CLONES void divide(float* __restrict x, std::int64_t n, float by) {
  for (std::int64_t i = 0; i < n; ++i) x[i] /= by;
}
MR_TARGET_CLONES void move(float* __restrict w, const float* __restrict update, std::int64_t n, float kept,
                           float rate) {
  for (std::int64_t i = 0; i < n; ++i) w[i] = w[i] * kept - rate * update[i];
}

constexpr std::int64_t grain = 4;  // chunks

template <class Body>
void for_each_chunk(const OptimizerChunk* chunks, std::int64_t count, const Body& body) {
  parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i, chunks[i]);
  });
}

OptimizerChunks chunks_of_all_ranks(OptimizerSpec spec) {
  spec.shards.clear();
  return split_into_chunks(spec);
}

}  // namespace

Muon::Muon(const OptimizerSpec& spec, const OptimizerChunks& chunks)
    : spec_(spec),
      chunks_(chunks),
      sharded_(!spec.shards.empty()),
      workspace_(std::size_t(NewtonSchulz::workspace(spec).count())) {
  if (sharded_) all_ = chunks_of_all_ranks(spec);
  x_ = workspace_.data();
  std::int64_t most = 0;
  for (std::size_t i = 0; i < spec.segments.size(); ++i) {
    const OptimizerSegment& s = spec.segments[i];
    if (s.rows == 0) continue;
    const auto begin = std::ranges::lower_bound(chunks.owned, std::int32_t(i), {}, &OptimizerChunk::segment);
    const auto end = std::ranges::upper_bound(chunks.owned, std::int32_t(i), {}, &OptimizerChunk::segment);
    if (begin == end) continue;
    auto& products = products_[{s.rows, s.columns}];
    if (!products) products = std::make_unique<OrthogonalProducts>(s.rows, s.columns);
    const std::int64_t count = chunks.first[i + 1] - chunks.first[i];
    matrices_.push_back({&s, chunks.first[i], count, begin - chunks.owned.begin(), end - begin,
                         muon_factor(spec.muon_scale, s), products.get()});
    most = std::max(most, count);
  }
  squares_.resize(std::size_t(most));
}

Muon::~Muon() = default;

void Muon::write_updates(const OptimizerArgs& args, float unscale) {
  for (const Matrix& matrix : matrices_)
    for_each_chunk(owned(matrix), matrix.owned_count, [&](std::int64_t, const OptimizerChunk& p) {
      alignas(64) float update[OptimizerSpec::chunk_size];
      (spec_.nesterov ? advance_nesterov : advance)(update, args.moment1 + p.moments, args.gradient + p.begin, p.count,
                                                    unscale, spec_.momentum);
      std::copy_n(update, p.count, args.updates + p.begin);
    });
}

double Muon::prepare(const Matrix& matrix, const OptimizerArgs& args, float unscale) {
  for_each_chunk(chunks(matrix), matrix.count, [&](std::int64_t i, const OptimizerChunk& p) {
    float* update = x_ + p.begin - matrix.segment->begin;
    if (sharded_)
      std::copy_n(args.updates + p.begin, p.count, update);
    else
      (spec_.nesterov ? advance_nesterov : advance)(update, args.moment1 + p.moments, args.gradient + p.begin, p.count,
                                                    unscale, spec_.momentum);
    squares_[std::size_t(i)] = sum_of_squares(update, p.count);
  });
  double sum = 0;
  for (std::int64_t i = 0; i < matrix.count; ++i) sum += squares_[std::size_t(i)];
  return std::sqrt(sum);
}

void Muon::update(const OptimizerArgs& args, float unscale, float learning_rate) {
  const NewtonSchulz::Workspace sizes = NewtonSchulz::workspace(spec_);
  float* const other = x_ + sizes.matrix;
  float* const gram = other + sizes.matrix;
  for (const Matrix& matrix : matrices_) {
    const OptimizerSegment& segment = *matrix.segment;
    const float norm = std::max(float(prepare(matrix, args, unscale)), NewtonSchulz::min_norm);
    for_each_chunk(chunks(matrix), matrix.count,
                   [&](std::int64_t, const OptimizerChunk& p) { divide(x_ + p.begin - segment.begin, p.count, norm); });
    const float* result = matrix.products->run(spec_.newton_schulz_steps, x_, other, gram, gram + sizes.gram);
    const float rate = learning_rate * segment.lr_factor;
    for_each_chunk(owned(matrix), matrix.owned_count, [&](std::int64_t, const OptimizerChunk& p) {
      move(args.master + p.master, result + p.begin - segment.begin, p.count, 1 - rate * segment.weight_decay,
           rate * matrix.factor);
    });
  }
}

}  // namespace millrace::cpu
