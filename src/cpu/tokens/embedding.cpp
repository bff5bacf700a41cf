#include <cstring>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/tokens/token_types.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES void add_to(float* __restrict sum, const float* __restrict values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += values[i];
}

class Embedding : public Op {
 public:
  explicit Embedding(const EmbeddingSpec& spec) : spec_(spec) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    with_tokens(Tensor{nullptr, spec_.raw, {}}, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    const std::size_t bytes = std::size_t(spec_.width) * size_of(spec_.dtype);
    with_tokens(args.src[0], [&](const auto* tokens) {
      parallel_ranges(spec_.src.count(), grain(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          std::memcpy(element(args.dst, i * spec_.width), element(args.weight[0], tokens[i] * spec_.width), bytes);
      });
    });
  }

  // Each thread adds the gradients for its own range of the vocabulary. So the order within a sum does not depend on
  // the number of threads.
  void backward(const OpArgs& args) override {
    if (!args.diff_weight[0]) return;
    float* const sums = args.diff_weight[0].as<float>();
    with_tokens(args.src[0], [&](const auto* tokens) {
      parallel_ranges(spec_.vocabulary, grain(), [&](std::int64_t first, std::int64_t last) {
        if (args.mode[0] == GradMode::write) std::fill(sums + first * spec_.width, sums + last * spec_.width, 0.0f);
        for (std::int64_t i = 0; i < spec_.src.count(); ++i) {
          const std::int64_t token = tokens[i];
          if (token < first || token >= last || token == spec_.padding) continue;
          for (std::int64_t c = 0; c < spec_.width; c += tile_count) {
            Tile tile;
            const std::int64_t n = std::min(tile_count, spec_.width - c);
            add_to(sums + token * spec_.width + c, read_floats(args.diff_dst, i * spec_.width + c, n, tile), n);
          }
        }
      });
    });
  }

 private:
  std::int64_t grain() const { return std::max<std::int64_t>(1, tile_count / spec_.width); }

  EmbeddingSpec spec_;
};

}  // namespace

std::unique_ptr<Op> make_embedding(const EmbeddingSpec& spec) { return std::make_unique<Embedding>(spec); }

}  // namespace millrace::cpu
