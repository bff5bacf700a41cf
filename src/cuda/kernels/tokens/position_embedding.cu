// Learned position embedding. The gradient of the weights is a sum over the columns of the matrix (rows, positions x
// channels).
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// Index i is a pack of n elements of some rows of the result.
template <class T, int n>
struct AddPositions {
  T* dst;
  const T *src, *weight;
  const float* token;      // null: there is none
  const StepState* state;  // says where the positions begin; null: at 0
  Divider by_packs;        // of a row of the result
  int token_packs;         // of its first position, if that is the token
  int position_packs;      // of each position, if they do not begin at 0
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const int row = by_packs.split(pack);
    float x[n], w[n];
    if (pack < token_packs)
      load(x, token + pack * n);
    else
      load(x, src + (i - std::int64_t(row + 1) * token_packs) * n);
    std::int64_t at = pack;
    if (state) at += std::int64_t(state->position) * position_packs;
    load(w, weight + at * n);
    for (int k = 0; k < n; ++k) x[k] += w[k];
    store(dst + i * n, x);
  }
};

// Index i is a pack of n elements of some rows of the source.
template <class T, int n>
struct DropToken {
  T* dst;
  const T* src;
  Divider by_packs;  // of a row of dst
  int token_packs;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t row = by_packs(int(i));
    store_pack(dst + i * n, *reinterpret_cast<const Pack<T, n>*>(src + (i + (row + 1) * token_packs) * n));
  }
};

class PositionEmbedding : public Op {
 public:
  PositionEmbedding(const PositionEmbeddingSpec& spec, const LaunchContext& context)
      : context_(context),
        dtype_(spec.dtype),
        rows_(spec.src[0]),
        count_(spec.dst().row_count()),
        token_(spec.class_token ? spec.channels() : 0),
        step_(spec.window > 0 ? spec.channels() : 0) {
    if (count_ > max_index)
      fail(Exit::config, "position embedding: rows of {} values are more than the kernels can index", count_);
  }
  MemoryRequirements memory_requirements() const override { return {column_sums_bytes(rows_, count_, context_), 0, 0}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      const bool wide =
          in_packs<T>(args.dst.as<T>(), args.src[0].as<T>()) && aligned(args.weight[0].as<T>(), pack_size<T>);
      wide ? add<T, pack_size<T>>(args) : add<T, 1>(args);
    });
  }

  void backward(const OpArgs& args) override {
    if (args.diff_weight[0])
      column_sums(context_, args.diff_weight[0].as<float>(), {args.diff_dst.data, dtype_, rows_, count_}, args.mode[0],
                  args.workspace);
    if (args.diff_weight[1])
      convert(context_, args.diff_weight[1].data, DType::f32, args.diff_weight[0].data, DType::f32, token_);
    if (!args.diff_src[0]) return;
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      T* const dst = args.diff_src[0].as<T>();
      const T* const src = args.diff_dst.as<T>();
      in_packs<T>(dst, src) ? drop_token<T, pack_size<T>>(dst, src) : drop_token<T, 1>(dst, src);
    });
  }

 private:
  template <class T>
  bool in_packs(const T* a, const T* b) const {
    constexpr int n = pack_size<T>;
    return count_ % n == 0 && token_ % n == 0 && step_ % n == 0 && aligned(a, n) && aligned(b, n);
  }
  template <class T, int n>
  void add(const OpArgs& args) const {
    const std::int64_t packs = count_ / n, source = (count_ - token_) / n;
    AddPositions<T, n> body{args.dst.as<T>(),
                            args.src[0].as<T>(),
                            args.weight[0].as<T>(),
                            token_ > 0 ? args.weight[1].as<float>() : nullptr,
                            step_ > 0 ? args.state : nullptr,
                            Divider(packs),
                            int(token_ / n),
                            int(step_ / n)};
    in_slices(rows_ * packs, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      body.dst = args.dst.as<T>() + begin * n;
      body.src = args.src[0].as<T>() + begin / packs * source * n;
      for_each(context_, count, body);
    });
  }
  template <class T, int n>
  void drop_token(T* dst, const T* src) const {
    const std::int64_t packs = (count_ - token_) / n;
    in_slices(rows_ * packs, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count,
               DropToken<T, n>{dst + begin * n, src + begin / packs * count_, Divider(packs), int(token_ / n)});
    });
  }

  LaunchContext context_;
  DType dtype_;
  // count: elements of a row of dst; token: of the class token, or 0; step: weights from one position to the next, if
  // the positions do not begin at 0.
  std::int64_t rows_, count_, token_, step_;
};

}  // namespace

std::unique_ptr<Op> make_position_embedding(const PositionEmbeddingSpec& spec, const LaunchContext& context) {
  return std::make_unique<PositionEmbedding>(spec, context);
}

}  // namespace millrace::cuda
