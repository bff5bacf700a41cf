// Learned position embedding. The gradient of the weights is a sum over the columns of the matrix (rows, positions x
// channels).
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

constexpr std::int64_t max_index = std::int64_t(1) << 30;

template <class T, int n>
struct AddPositions {  // index i is a pack of n elements of some rows
  T* dst;
  const T *src, *weight;
  Divider by_packs;  // of a row
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    by_packs.split(pack);
    float x[n], w[n];
    load(x, src + i * n);
    load(w, weight + std::int64_t(pack) * n);
    for (int k = 0; k < n; ++k) x[k] += w[k];
    store(dst + i * n, x);
  }
};

template <class T>
struct CopyElements {
  T* dst;
  const T* src;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    store_pack(dst + i, *reinterpret_cast<const Pack<T, n>*>(src + i));
  }
};

class PositionEmbedding : public Op {
 public:
  PositionEmbedding(const PositionEmbeddingSpec& spec, const LaunchContext& context)
      : context_(context), dtype_(spec.dtype), rows_(spec.src[0]), count_(spec.src.row_count()) {
    if (count_ > max_index)
      fail(Exit::config, "position embedding: rows of {} values are more than the kernels can index", count_);
  }
  MemoryRequirements memory_requirements() const override { return {column_sums_bytes(rows_, count_, context_), 0, 0}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = args.dst.as<T>();
      const T *const src = args.src[0].as<T>(), *const weight = args.weight[0].as<T>();
      if (count_ % n == 0 && aligned(dst, n) && aligned(src, n) && aligned(weight, n))
        add<T, n>(dst, src, weight);
      else
        add<T, 1>(dst, src, weight);
    });
  }

  void backward(const OpArgs& args) override {
    if (args.diff_weight[0])
      column_sums(context_, args.diff_weight[0].as<float>(), {args.diff_dst.data, dtype_, rows_, count_}, args.mode[0],
                  args.workspace);
    if (!args.diff_src[0]) return;
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = args.diff_src[0].as<T>();
      const T* const src = args.diff_dst.as<T>();
      vectorized_for_each<n>(context_, rows_ * count_, aligned(dst, n) && aligned(src, n), CopyElements<T>{dst, src});
    });
  }

 private:
  template <class T, int n>
  void add(T* dst, const T* src, const T* weight) const {
    const std::int64_t packs = count_ / n;
    in_slices(rows_ * packs, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count, AddPositions<T, n>{dst + begin * n, src + begin * n, weight, Divider(packs)});
    });
  }

  LaunchContext context_;
  DType dtype_;
  std::int64_t rows_, count_;
};

}  // namespace

std::unique_ptr<Op> make_position_embedding(const PositionEmbeddingSpec& spec, const LaunchContext& context) {
  return std::make_unique<PositionEmbedding>(spec, context);
}

}  // namespace millrace::cuda
