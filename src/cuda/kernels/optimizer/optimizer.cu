// The optimizer: norm, decision, one pass over the flat buffers. Nothing of it waits for the host: what a step does is
// a Decision in device memory. lars and lamb know their segments' norms before the last pass. muon updates its matrices
// one after the other, then all other elements in one pass.
#include <algorithm>
#include <map>
#include <utility>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/optimizer/muon_kernels.hpp"
#include "cuda/kernels/optimizer/optimizer_kernels.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

class Optimizer : public OptimizerOp {
  using Kind = OptimizerSpec::Kind;

 public:
  Optimizer(const OptimizerSpec& spec, const LaunchContext& context, Device& device,
            const MakeOrthogonalizer& make_orthogonalizer)
      : spec_(spec), stats_parts_(spec.stats_parts()), context_(context), device_(device) {
    dispatch_dtype(spec_.weight_dtype, [](auto) {});
    OptimizerChunks chunks = split_into_chunks(spec_);
    std::vector<SegmentChunks> segments;
    for (std::size_t i = 0; i < spec_.segments.size(); ++i)
      segments.push_back({chunks.first[i], chunks.first[i + 1] - chunks.first[i], spec_.segments[i].weight_decay});
    owned_ = std::int64_t(chunks.owned.size());
    all_ = chunks.all();
    const auto in_matrix = [&](const Chunk& chunk) { return spec_.segments[std::size_t(chunk.segment)].rows > 0; };
    std::ranges::stable_partition(chunks.owned, std::not_fn(in_matrix));
    updated_together_ = owned_ - std::ranges::count_if(chunks.owned, in_matrix);
    if (spec_.has_matrices()) make_matrices(chunks, make_orthogonalizer);
    chunks_ = uploaded(device, chunks.owned);
    segments_ = uploaded(device, segments);
    if (spec_.shards.empty())
      sums_ = Buffer(device, MemoryKind::device, std::size_t(square_sum_count(spec_) + 1) * sizeof(double));
    step_scalars_ = Buffer(device, MemoryKind::device, sizeof(StepScalars));
    if (spec_.by_segment()) trust_ratios_ = Buffer(device, MemoryKind::device, (segments.size() + 1) * sizeof(float));
    device.synchronize();
  }

  int phases() const override { return spec_.phases(); }

  void run(int phase, const OptimizerArgs& args) override {
    const bool lars = spec_.kind == Kind::lars, lamb = spec_.kind == Kind::lamb;
    double *sums = spec_.shards.empty() ? sums_.as<double>() : args.sums, *weight_sums = sums + all_;
    const AdamMoments adam{spec_.beta1, spec_.beta2, spec_.epsilon};
    if (phase == 0) {
      zero_sums_of_other_ranks(sums);
      sum_squares(args.gradient, false, sums);
      if (lars) sum_squares(args.master, true, weight_sums);
      return;
    }
    if (phase == 1)
      launch<1024, 1>(context_, 1, 1024, 0,
                      PrepareStep{sums, all_, args.state, step_scalars_.as<StepScalars>(), args.loss_weight,
                                  double(spec_.loss_positions), spec_.clip, spec_.beta1, spec_.beta2});
    if (phase == 1 && lamb) {
      zero_sums_of_other_ranks(sums);
      launch(context_, owned_, chunk_threads, 0,
             LambMoments{chunks_.as<Chunk>(), step_scalars_.as<StepScalars>(), args.gradient, args.master, args.moment1,
                         args.moment2, weight_sums, sums, adam});
      return;
    }
    if (phase == 1 && spec_.gathers_updates()) return write_muon_updates(args);
    if (spec_.by_segment()) compute_trust_ratios(sums);
    if (spec_.kind == Kind::muon)
      for (const Matrix& matrix : matrices_) update_matrix(args, matrix);
    if (spec_.kind == Kind::adamw || spec_.kind == Kind::muon)
      update(args, AdamW{adam});
    else if (lamb)
      update(args, Lamb{adam});
    else if (spec_.momentum == 0)
      update(args, SgdPlain{});
    else
      update(args, SgdMomentum{spec_.momentum, spec_.nesterov});
    for (const OptimizerSpec::StatsPart& p : stats_parts_)
      for_each(context_, p.count,
               UpdateRunningStats{step_scalars_.as<StepScalars>(), args.running + p.begin, args.stats + p.begin,
                                  p.momentum});
  }

 private:
  struct Matrix {
    OptimizerSegment segment;
    std::int64_t owned_first, owned_count;  // its chunks of this rank, in chunks_
    std::int64_t first, count;              // those of all ranks, in matrix_chunks()
    Orthogonalizer* orthogonalizer;
  };
  struct ChunkRange {
    std::int64_t first, count;
  };

  void make_matrices(const OptimizerChunks& chunks, const MakeOrthogonalizer& make_orthogonalizer) {
    std::size_t workspace_bytes = 0;
    std::int64_t owned_first = updated_together_, most = 0;
    OptimizerChunks all;
    if (!spec_.shards.empty()) {
      OptimizerSpec whole = spec_;
      whole.shards.clear();
      all = split_into_chunks(whole);
      all_chunks_ = uploaded(device_, all.owned);
    }
    for (std::size_t i = 0; i < spec_.segments.size(); ++i) {
      const OptimizerSegment& s = spec_.segments[i];
      if (s.rows == 0) continue;
      // Of all matrices, because the ranks choose the kernels of the products together.
      auto& orthogonalizer = orthogonalizers_[{s.rows, s.columns}];
      if (!orthogonalizer) orthogonalizer = make_orthogonalizer(s.rows, s.columns, spec_.newton_schulz_steps);
      const std::int64_t owned_count = std::ranges::count(chunks.owned, std::int32_t(i), &Chunk::segment);
      if (owned_count == 0) continue;
      workspace_bytes = std::max(workspace_bytes, orthogonalizer->workspace_bytes());
      const std::int64_t count = chunks.first[i + 1] - chunks.first[i];
      const std::int64_t first = spec_.shards.empty() ? owned_first : chunks.first[i];
      matrices_.push_back({s, owned_first, owned_count, first, count, orthogonalizer.get()});
      owned_first += owned_count;
      most = std::max(most, count);
    }
    const NewtonSchulz::Workspace sizes = NewtonSchulz::workspace(spec_);
    matrix_floats_ = Buffer(device_, MemoryKind::device, std::size_t(sizes.count()) * sizeof(float));
    matmul_workspace_ = Buffer(device_, MemoryKind::device, workspace_bytes + 1);
    squares_ = Buffer(device_, MemoryKind::device, std::size_t(most) * sizeof(double));
    float* const x = matrix_floats_.as<float>();
    float* const gram = x + 2 * sizes.matrix;
    memory_ = {x, x + sizes.matrix, gram, gram + sizes.gram, matmul_workspace_.data()};
    device_.synchronize();  // before `all` ends
  }

  // The chunks of matrices, of all ranks.
  const Chunk* matrix_chunks() const { return (spec_.shards.empty() ? chunks_ : all_chunks_).as<Chunk>(); }

  // With shards, in the phase before update_matrix(): momentum and update of this rank's elements of all matrices.
  void write_muon_updates(const OptimizerArgs& args) const {
    launch(context_, owned_ - updated_together_, chunk_threads, 0,
           AdvanceMuon{chunks_.as<Chunk>() + updated_together_, step_scalars_.as<StepScalars>(), args.gradient,
                       args.moment1, args.updates, 0, nullptr, spec_.momentum, spec_.nesterov});
  }

  void update_matrix(const OptimizerArgs& args, const Matrix& matrix) const {
    const Chunk* chunks = matrix_chunks() + matrix.first;
    const StepScalars* scalars = step_scalars_.as<StepScalars>();
    const std::int64_t begin = matrix.segment.begin;
    double* squares = squares_.as<double>();
    if (spec_.shards.empty())
      launch(context_, matrix.count, chunk_threads, 0,
             AdvanceMuon{chunks, scalars, args.gradient, args.moment1, memory_.x, begin, squares, spec_.momentum,
                         spec_.nesterov});
    else
      launch(context_, matrix.count, chunk_threads, 0,
             CollectMuon{chunks, scalars, args.updates, memory_.x, begin, squares});
    launch(context_, matrix.count, chunk_threads, 0,
           NormaliseMuon{chunks, scalars, squares, memory_.x, memory_.other, begin});
    OptimizerArgs from = args;
    from.gradient = matrix.orthogonalizer->run(memory_);
    update(from, MuonStep{muon_factor(spec_.muon_scale, matrix.segment)}, {matrix.owned_first, matrix.owned_count},
           begin);
  }

  // Enqueues a copy: `values` must live until the constructor calls synchronize().
  template <class T>
  static Buffer uploaded(Device& device, const std::vector<T>& values) {
    Buffer buffer(device, MemoryKind::device, (values.size() + 1) * sizeof(T));
    device.copy_to_device(Stream::compute, buffer.data(), values.data(), values.size() * sizeof(T));
    return buffer;
  }

  void zero_sums_of_other_ranks(double* sums) {
    if (!spec_.shards.empty())
      device_.fill_zero(Stream::compute, sums, std::size_t(all_ * (spec_.by_segment() ? 2 : 1)) * sizeof(double));
  }
  void sum_squares(const float* values, bool of_master, double* sums) const {
    launch(context_, owned_, chunk_threads, 0, SumSquares{chunks_.as<Chunk>(), values, of_master, sums});
  }
  void compute_trust_ratios(const double* sums) const {
    launch(context_, std::int64_t(spec_.segments.size()), 128, 0,
           ComputeTrustRatios{segments_.as<SegmentChunks>(), sums + all_, sums, step_scalars_.as<StepScalars>(),
                              trust_ratios_.as<float>(), spec_.kind == Kind::lars, spec_.trust_coefficient,
                              spec_.epsilon});
  }
  template <class Rule>
  void update(const OptimizerArgs& args, const Rule& rule) const {
    update(args, rule, {0, updated_together_}, 0);
  }
  template <class Rule>
  void update(const OptimizerArgs& args, const Rule& rule, const ChunkRange& range, std::int64_t gradient_begin) const {
    dispatch_dtype(spec_.weight_dtype, [&](auto zero) {
      using W = decltype(zero);
      launch(context_, range.count, chunk_threads, 0,
             Update<Rule, W>{chunks_.as<Chunk>() + range.first, step_scalars_.as<StepScalars>(),
                             trust_ratios_.as<float>(), args.gradient, gradient_begin, args.master, args.moment1,
                             args.moment2, spec_.average > 0 ? args.average : nullptr, spec_.average,
                             static_cast<W*>(args.weights), rule});
    });
  }

  OptimizerSpec spec_;
  std::vector<OptimizerSpec::StatsPart> stats_parts_;
  LaunchContext context_;
  Device& device_;
  std::int64_t owned_ = 0, all_ = 0;   // number of chunks
  std::int64_t updated_together_ = 0;  // the first chunks of chunks_; those of the matrices of muon are behind them
  Buffer chunks_, segments_;           // tables on the device: the owned chunks, and SegmentChunks
  Buffer sums_;  // sums of squares, if the parameters are not sharded: gradient or direction, then weights
  Buffer step_scalars_, trust_ratios_;  // trust_ratios_: one for each segment; empty for SGD and AdamW
  // muon
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Orthogonalizer>> orthogonalizers_;  // by shape
  std::vector<Matrix> matrices_;  // of which this rank owns elements
  Buffer all_chunks_;             // with shards: those of all ranks
  Buffer matrix_floats_, matmul_workspace_, squares_;
  OrthogonalizerMemory memory_;  // in these
};

}  // namespace

std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec, const LaunchContext& context, Device& device,
                                            const MakeOrthogonalizer& make_orthogonalizer) {
  return std::make_unique<Optimizer>(spec, context, device, make_orthogonalizer);
}

}  // namespace millrace::cuda
