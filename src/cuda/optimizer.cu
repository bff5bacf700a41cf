// The optimizer: norm, decision, one pass over the flat buffers. Nothing of it waits for the host: what a step does is
// a Decision in device memory. lars and lamb know their segments' norms before the last pass.
#include "kernels.hpp"
#include "millrace/base/error.hpp"
#include "optimizer_bodies.hpp"
#include "with_type.hpp"

namespace millrace::cuda {
namespace {

class Optimizer : public OptimizerOp {
  using Kind = OptimizerSpec::Kind;

 public:
  Optimizer(const OptimizerSpec& spec, const Context& context, Device& device) : spec_(spec), context_(context) {
    with_type(spec_.weight_dtype, [](auto) {});
    std::vector<Piece> pieces;
    std::vector<SegmentPieces> segments;
    std::int64_t end = 0;
    for (const auto& s : spec_.segments) {
      if (s.begin < end || s.begin % pack || s.count < 0 || (s.begin + s.count + pack - 1) / pack * pack > spec_.count)
        fail(Exit::internal, "optimizer: segment [", s.begin, ", +", s.count,
             ") overlaps another, begins at no multiple ", "of ", pack, " or ends beyond ", spec_.count);
      end = s.begin + s.count;
      segments.push_back({std::int64_t(pieces.size()), (s.count + piece_count - 1) / piece_count, s.weight_decay});
      for (std::int64_t at = s.begin; at < end; at += piece_count)
        pieces.push_back({at, std::int32_t(end - at < piece_count ? end - at : piece_count),
                          std::int32_t(segments.size() - 1), s.weight_decay});
    }
    pieces_count_ = std::int64_t(pieces.size());
    pieces_ = uploaded(device, pieces), segments_ = uploaded(device, segments);
    sums_ = Buffer(device, MemoryKind::device, (pieces.size() + 1) * sizeof(double));
    decision_ = Buffer(device, MemoryKind::device, sizeof(Decision));
    if (spec_.by_segment()) {
      weight_sums_ = Buffer(device, MemoryKind::device, (pieces.size() + 1) * sizeof(double));
      trust_ = Buffer(device, MemoryKind::device, (segments.size() + 1) * sizeof(float));
    }
    device.synchronize();
  }

  void step(const OptimizerArgs& args) override {
    sum_squares(args.gradient, sums_);
    launch(context_.stream, 1, 1024, 0,
           Decide{sums_.as<double>(), pieces_count_, args.state, decision_.as<Decision>(), spec_.clip, spec_.beta1,
                  spec_.beta2});
    const AdamMoments adam{spec_.beta1, spec_.beta2, spec_.epsilon};
    if (spec_.kind == Kind::lars) {
      sum_squares(args.master, weight_sums_);
      trust();
    } else if (spec_.kind == Kind::lamb) {
      launch(context_.stream, pieces_count_, piece_threads, 0,
             LambMoments{pieces_.as<Piece>(), decision_.as<Decision>(), args.gradient, args.master, args.moment1,
                         args.moment2, weight_sums_.as<double>(), sums_.as<double>(), adam});
      trust();
    }
    if (spec_.kind == Kind::adamw)
      update(args, AdamW{adam});
    else if (spec_.kind == Kind::lamb)
      update(args, Lamb{adam});
    else if (spec_.momentum == 0)
      update(args, SgdPlain{});
    else
      update(args, SgdMomentum{spec_.momentum, spec_.nesterov});
    for_each(context_, spec_.stats_count,
             MoveTowards{decision_.as<Decision>(), args.running, args.stats, spec_.stats_momentum});
  }

 private:
  // Enqueued: host values must live until the constructor's synchronize().
  template <class T>
  static Buffer uploaded(Device& device, const std::vector<T>& values) {
    Buffer buffer(device, MemoryKind::device, (values.size() + 1) * sizeof(T));
    device.copy_in(Lane::compute, buffer.data(), values.data(), values.size() * sizeof(T));
    return buffer;
  }

  void sum_squares(const float* values, const Buffer& sums) const {
    launch(context_.stream, pieces_count_, piece_threads, 0,
           SumSquares{pieces_.as<Piece>(), values, sums.as<double>()});
  }
  void trust() const {
    launch(context_.stream, std::int64_t(spec_.segments.size()), 128, 0,
           Trust{segments_.as<SegmentPieces>(), weight_sums_.as<double>(), sums_.as<double>(), decision_.as<Decision>(),
                 trust_.as<float>(), spec_.kind == Kind::lars, spec_.trust, spec_.epsilon});
  }
  template <class Rule>
  void update(const OptimizerArgs& args, const Rule& rule) const {
    with_type(spec_.weight_dtype, [&](auto zero) {
      using W = decltype(zero);
      launch(context_.stream, pieces_count_, piece_threads, 0,
             Update<Rule, W>{pieces_.as<Piece>(), decision_.as<Decision>(), trust_.as<float>(), args.gradient,
                             args.master, args.moment1, args.moment2, static_cast<W*>(args.weights), rule});
    });
  }

  OptimizerSpec spec_;
  Context context_;
  std::int64_t pieces_count_ = 0;
  Buffer pieces_, segments_;   // tables: Piece, SegmentPieces
  Buffer sums_, weight_sums_;  // of squares, by piece: gradient or direction, weights
  Buffer decision_, trust_;    // trust: by segment; empty for sgd and adamw
};

}  // namespace

std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec, const Context& context, Device& device) {
  return std::make_unique<Optimizer>(spec, context, device);
}

}  // namespace millrace::cuda
