#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"
#include "millrace/ops/augmentation.hpp"

namespace millrace::cpu {
namespace {

class MoveLabels : public Op {
 public:
  explicit MoveLabels(const MoveLabelsSpec& spec)
      : rows_(spec.src[0]),
        augmenter_(spec.input),
        stored_(spatial_extents(spec.input.src)),
        extent_(spatial_extents(spec.input.dst())) {}

  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }
  void backward(const OpArgs&) override {}

  void forward(const OpArgs& args) override {
    const std::int64_t lines = extent_[0] * extent_[1];
    parallel_ranges(rows_ * lines, std::max<std::int64_t>(1, 16384 / extent_[2]),
                    [&](std::int64_t begin, std::int64_t end) {
                      Augmentation move;
                      std::int64_t row = -1;
                      for (std::int64_t i = begin; i < end; ++i) {
                        if (i / lines != row) {
                          row = i / lines;
                          move = augmenter_.of_row(args.state, args.src[1].as<std::int64_t>(), row);
                        }
                        move_line(args, row, i % lines, move);
                      }
                    });
  }

 private:
  void move_line(const OpArgs& args, std::int64_t row, std::int64_t line, const Augmentation& move) const {
    const std::int32_t* from = args.src[0].as<std::int32_t>() + row * stored_[0] * stored_[1] * stored_[2];
    std::int32_t* to = args.dst.as<std::int32_t>() + (row * extent_[0] * extent_[1] + line) * extent_[2];
    for (std::int64_t x = 0; x < extent_[2]; ++x) {
      const std::int64_t place =
          move.source_place({line / extent_[1], line % extent_[1], x}, extent_.data(), stored_.data());
      to[x] = place < 0 ? -1 : from[place];
    }
  }

  std::int64_t rows_;
  Augmenter augmenter_;
  std::array<std::int64_t, 3> stored_, extent_;  // spatial extents of src and of dst
};

}  // namespace

std::unique_ptr<Op> make_move_labels(const MoveLabelsSpec& spec) { return std::make_unique<MoveLabels>(spec); }

}  // namespace millrace::cpu
