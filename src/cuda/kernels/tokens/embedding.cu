// Embedding. Forward copies rows of the table. Backward sorts the positions of the batch by token (token_order.hpp).
// Then each thread adds a few columns of one row over all positions with its token, in their order.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/tokens/token_order.hpp"

namespace millrace::cuda {
namespace {

template <class T, class Token, int n>
struct EmbeddingLookup {  // index i is a pack of n elements of dst
  T* dst;
  const T* table;
  const Token* tokens;
  Divider by_packs;  // of a row
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const int place = by_packs.split(pack);
    const std::int64_t from = std::int64_t(tokens[place]) * by_packs.divisor + pack;
    reinterpret_cast<Pack<T, n>*>(dst)[i] = reinterpret_cast<const Pack<T, n>*>(table)[from];
  }
};

template <class T, int n>
struct EmbeddingGradient {  // index i is a pack of n elements of the table
  float* sum;
  const T* diff;
  token_order::Sorted sorted;
  Divider by_packs;
  bool add;
  int padding;                         // a row without a gradient; -1: none
  static constexpr int in_flight = 4;  // loads that do not wait for each other

  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const int row = by_packs.split(pack);
    token_order::Run run = sorted.runs[row];
    if (row == padding) run.end = run.first;
    if (add && run.first == run.end) return;
    float total[n];
    for (int k = 0; k < n; ++k) total[k] = 0;
    int place = run.first;
    for (; place + in_flight <= run.end; place += in_flight) {
      Pack<T, n> packs[in_flight];
      for (int j = 0; j < in_flight; ++j) packs[j] = at(place + j, pack);
      for (int j = 0; j < in_flight; ++j)
        for (int k = 0; k < n; ++k) total[k] += widen(packs[j].v[k]);
    }
    for (; place < run.end; ++place) {
      const Pack<T, n> last = at(place, pack);
      for (int k = 0; k < n; ++k) total[k] += widen(last.v[k]);
    }
    constexpr int m = n < 4 ? n : 4;  // floats in one access
    for (int first = 0; first < n; first += m) {
      float* const to = sum + i * n + first;
      float before[m], after[m];
      if (add) load(before, to);
      for (int k = 0; k < m; ++k) after[k] = add ? before[k] + total[first + k] : total[first + k];
      store(to, after);
    }
  }

 private:
  MR_DEVICE_INLINE Pack<T, n> at(int place, int pack) const {
    return reinterpret_cast<const Pack<T, n>*>(diff)[std::int64_t(sorted.order[place]) * by_packs.divisor + pack];
  }
};

class Embedding : public Op {
 public:
  Embedding(const EmbeddingSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    with_tokens(nullptr, [](auto) {});
    if (std::max({spec_.src.count(), spec_.vocabulary, spec_.width}) > max_index)
      fail(Exit::config,
           "embedding: {} tokens of a vocabulary of {} are more than the kernels can index. lower "
           "train.micro_batch",
           spec_.src.count(), spec_.vocabulary);
  }
  MemoryRequirements memory_requirements() const override {
    return {spec_.mode == Mode::train ? order_plan().bytes() : 0, 0, 0};
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    with_both(args, [&](auto zero, const auto* tokens) {
      using T = decltype(zero);
      T* const dst = args.dst.as<T>();
      const T* const table = args.weight[0].as<T>();
      if (spec_.width % pack_size<T> == 0 && aligned(dst, pack_size<T>) && aligned(table, pack_size<T>))
        look_up<pack_size<T>>(dst, table, tokens);
      else
        look_up<1>(dst, table, tokens);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_weight[0]) return;
    with_both(args, [&](auto zero, const auto* tokens) {
      using T = decltype(zero);
      const auto sorted = token_order::sort(context_, tokens, order_plan(), args.workspace);
      const T* const diff = args.diff_dst.as<T>();
      if (spec_.width % pack_size<T> == 0 && aligned(diff, pack_size<T>) && aligned(args.diff_weight[0].as<float>(), 4))
        sum_gradients<T, pack_size<T>>(args, diff, sorted);
      else
        sum_gradients<T, 1>(args, diff, sorted);
    });
  }

 private:
  token_order::Plan order_plan() const { return {spec_.src.count(), spec_.vocabulary, context_}; }

  template <int n, class T, class Token>
  void look_up(T* dst, const T* table, const Token* tokens) const {
    const std::int64_t packs = spec_.width / n;
    in_slices(spec_.src.count() * packs, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count,
               EmbeddingLookup<T, Token, n>{dst + begin * n, table, tokens + begin / packs, Divider(packs)});
    });
  }
  // Of the rows from this one on.
  int padding_from(std::int64_t row) const {
    return spec_.padding < row || spec_.padding >= spec_.vocabulary ? -1 : int(spec_.padding - row);
  }
  template <class T, int n>
  void sum_gradients(const OpArgs& args, const T* diff, const token_order::Sorted& sorted) const {
    const std::int64_t packs = spec_.width / n;
    in_slices(spec_.vocabulary * packs, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count,
               EmbeddingGradient<T, n>{args.diff_weight[0].as<float>() + begin * n,
                                       diff,
                                       {sorted.runs + begin / packs, sorted.order},
                                       Divider(packs),
                                       args.mode[0] == GradMode::add,
                                       padding_from(begin / packs)});
    });
  }

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
