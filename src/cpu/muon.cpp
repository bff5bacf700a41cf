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

}  // namespace

Muon::Muon(const OptimizerSpec& spec, const OptimizerChunks& chunks)
    : spec_(spec), chunks_(chunks), workspace_(std::size_t(NewtonSchulz::workspace(spec).count())) {
  x_ = workspace_.data();
  std::int64_t most = 0;
  for (std::size_t i = 0; i < spec.segments.size(); ++i) {
    const OptimizerSegment& s = spec.segments[i];
    if (s.rows == 0) continue;
    auto& products = products_[{s.rows, s.columns}];
    if (!products) products = std::make_unique<OrthogonalProducts>(s.rows, s.columns);
    const std::int64_t count = chunks.first[i + 1] - chunks.first[i];
    matrices_.push_back({&s, chunks.first[i], count, muon_factor(spec.muon_scale, s), products.get()});
    most = std::max(most, count);
  }
  squares_.resize(std::size_t(most));
}

Muon::~Muon() = default;

double Muon::advance_momentum(const Matrix& matrix, const OptimizerArgs& args, float unscale) {
  parallel_ranges(matrix.count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const OptimizerChunk& p = chunks_.owned[std::size_t(matrix.first + i)];
      float* update = x_ + p.begin - matrix.segment->begin;
      (spec_.nesterov ? advance_nesterov : advance)(update, args.moment1 + p.moments, args.gradient + p.begin, p.count,
                                                    unscale, spec_.momentum);
      squares_[std::size_t(i)] = sum_of_squares(update, p.count);
    }
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
    const float norm = std::max(float(advance_momentum(matrix, args, unscale)), NewtonSchulz::min_norm);
    const auto for_chunks = [&](const auto& body) {
      parallel_ranges(matrix.count, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) body(chunks_.owned[std::size_t(matrix.first + i)]);
      });
    };
    for_chunks([&](const OptimizerChunk& p) { divide(x_ + p.begin - segment.begin, p.count, norm); });
    const float* result = matrix.products->run(spec_.newton_schulz_steps, x_, other, gram, gram + sizes.gram);
    const float rate = learning_rate * segment.lr_factor;
    for_chunks([&](const OptimizerChunk& p) {
      move(args.master + p.master, result + p.begin - segment.begin, p.count, 1 - rate * segment.weight_decay,
           rate * matrix.factor);
    });
  }
}

}  // namespace millrace::cpu
