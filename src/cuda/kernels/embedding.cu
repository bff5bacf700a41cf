// Embedding. Forward copies rows of the table. In backward, a block handles one token of the vocabulary after the
// other, and adds the gradients of all positions with that token in their order. There are no atomics, so the result is
// deterministic.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

constexpr int threads = 256;

// dst[i] = table[tokens[i / width], i % width]
template <class T, class Token>
struct EmbeddingLookup {
  T* dst;
  const T* table;
  const Token* tokens;
  std::int64_t width;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t place = i / width;
    dst[i] = table[std::int64_t(tokens[place]) * width + (i - place * width)];
  }
};

template <class T, class Token>
struct EmbeddingGradient {
  float* sum;
  const T* diff;
  const Token* tokens;
  std::int64_t places, vocabulary, width;
  bool add;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int* here = block.template shared<int>();
    const int thread = block.thread(), all = block.threads();
    for (std::int64_t v = block.index(); v < vocabulary; v += block.blocks())
      for (std::int64_t first = 0; first < width; first += all) {
        const std::int64_t column = first + thread;
        float total = 0;
        for (std::int64_t begin = 0; begin < places; begin += all) {
          const bool mine = begin + thread < places && std::int64_t(tokens[begin + thread]) == v;
          if (block.sum(mine ? 1.0f : 0.0f) == 0) continue;  // the same on all threads
          here[thread] = mine;
          block.sync();
          if (column < width)
            for (int k = 0; k < all; ++k)
              if (here[k]) total += widen(diff[(begin + k) * width + column]);
          block.sync();
        }
        if (column < width) {
          float* const to = sum + v * width + column;
          *to = add ? *to + total : total;
        }
      }
  }
};

class Embedding : public Op {
 public:
  Embedding(const EmbeddingSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    with_tokens(nullptr, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    with_both(args, [&](auto zero, const auto* tokens) {
      using T = decltype(zero);
      using Token = std::remove_cvref_t<decltype(*tokens)>;
      for_each(context_, spec_.dst().count(),
               EmbeddingLookup<T, Token>{args.dst.as<T>(), args.weight[0].as<T>(), tokens, spec_.width});
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_weight[0]) return;
    with_both(args, [&](auto zero, const auto* tokens) {
      using T = decltype(zero);
      using Token = std::remove_cvref_t<decltype(*tokens)>;
      const std::int64_t blocks = std::min(spec_.vocabulary, std::int64_t(context_.multiprocessors) * 32);
      launch(
          context_.stream, blocks, threads, threads * sizeof(int),
          EmbeddingGradient<T, Token>{args.diff_weight[0].as<float>(), args.diff_dst.as<T>(), tokens, spec_.src.count(),
                                      spec_.vocabulary, spec_.width, args.mode[0] == GradMode::add});
    });
  }

 private:
  // Calls body(const Token*) with the type of the tokens.
  template <class Body>
  void with_tokens(const void* tokens, const Body& body) const {
    if (spec_.raw == DType::u8) return body(static_cast<const std::uint8_t*>(tokens));
    if (spec_.raw == DType::u16) return body(static_cast<const std::uint16_t*>(tokens));
    if (spec_.raw == DType::i32) return body(static_cast<const std::int32_t*>(tokens));
    fail(Exit::config, "embedding: {} values cannot be tokens. use uint8, uint16 or int32", name_of(spec_.raw));
  }
  template <class Body>
  void with_both(const OpArgs& args, const Body& body) const {
    dispatch_dtype(spec_.dtype,
                   [&](auto zero) { with_tokens(args.src[0].data, [&](const auto* tokens) { body(zero, tokens); }); });
  }

  EmbeddingSpec spec_;
  LaunchContext context_;
};

}  // namespace

std::unique_ptr<Op> make_embedding(const EmbeddingSpec& spec, const LaunchContext& context) {
  return std::make_unique<Embedding>(spec, context);
}

}  // namespace millrace::cuda
