// Attention in tiles of 64 queries by 64 keys, in float32 on the usual arithmetic units, for every type and head size
// (Dao et al. 2022, without tensor cores). The scores of a tile stay on the chip.
//
// A block computes the results of 64 queries of a head or, for the gradients of keys and values, of 64 keys. It adds
// them up over all tiles in registers, so that nothing depends on the order of blocks. The gradient of the keys adds
// over the query heads that share them.
//
// The registers hold 128 columns (64 for keys and values). Wider heads are split: more blocks compute the same scores.
#include <algorithm>
#include <cmath>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/attention/backward.hpp"
#include "cuda/kernels/attention/forward.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

using namespace attention;

struct WriteSeed {  // index i is a part of the rows
  AttentionSeed* seeds;
  const std::int64_t* ids;
  const StepState* state;
  std::uint64_t key;
  int rows;  // of a part
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const Random4 drawn = philox(key, state->rng_step << 32, std::uint64_t(ids[i * rows]));
    seeds[i].seed = std::int64_t(std::uint64_t(drawn.v[0] & 0x7fffffffu) << 32 | drawn.v[1]);
    seeds[i].offset = 0;
  }
};

class Attention : public Op {
 public:
  Attention(const AttentionSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    heads_ = {int(spec_.positions()), int(spec_.head_size()), int(spec_.heads),
              int(spec_.key_heads),   spec_.causal,           float(1 / std::sqrt(double(spec_.head_size())))};
    if (spec_.drops()) heads_.factor = 1 / (1 - spec_.dropout);
    heads_.dropout = {spec_.seed, spec_.layer, spec_.positions(), spec_.dropout};
    constexpr std::int64_t max_blocks = std::int64_t(1) << 30;
    if (spec_.positions() > max_blocks || spec_.src[-1] > max_blocks || blocks(spec_.heads, 1) > max_blocks)
      fail(Exit::config, "attention: an input of {} is more than the kernels can index. lower train.micro_batch",
           spec_.src.str());
  }
  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    needs.saved = needs.workspace = std::size_t(spec_.src[0] * spec_.heads * spec_.positions()) * sizeof(float);
    return needs;
  }
  std::string implementation() const override { return "kernels"; }

  void forward(const OpArgs& args) override {
    float* const log_sums = spec_.mode == Mode::train ? static_cast<float*>(args.saved) : nullptr;
    dispatch(args, [&](auto zero, auto n) {
      using T = decltype(zero);
      with_parts([&](auto parts) {
        run(blocks(spec_.heads, parts),
            Forward<T, n, parts>{heads(args), args.dst.as<T>(), args.src[0].as<T>(), log_sums});
      });
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    float* const delta = static_cast<float*>(args.workspace);
    dispatch(args, [&](auto zero, auto n) {
      using T = decltype(zero);
      const Tensors<T> tensors{args.src[0].as<T>(), args.dst.as<T>(), args.diff_dst.as<T>(),
                               static_cast<const float*>(args.saved)};
      T* const diff_src = args.diff_src[0].as<T>();
      with_parts([&](auto parts) {
        run(blocks(spec_.heads, parts), QueryGradients<T, n, parts>{heads(args), tensors, diff_src, delta});
      });
      run(blocks(spec_.key_heads, 1), KeyGradients<T, n>{heads(args), tensors, diff_src, delta});
    });
  }

 private:
  Heads heads(const OpArgs& args) const {
    Heads out = heads_;
    if (spec_.documents) out.starts = args.src[2].as<std::int32_t>();
    if (spec_.drops()) out.ids = args.src[1].as<std::int64_t>();
    out.state = args.state;
    return out;
  }
  std::int64_t blocks(std::int64_t heads, std::int64_t parts) const {
    const std::int64_t columns = parts * tile, splits = (spec_.head_size() + columns - 1) / columns;
    return spec_.src[0] * heads * ((spec_.positions() + tile - 1) / tile) * splits;
  }
  template <class Body>
  void run(std::int64_t blocks, const Body& body) const {
    launch<threads, 2>(context_, blocks, threads, shared_floats * sizeof(float), body);
  }
  // Calls body(T{}, elements of an access).
  template <class Body>
  void dispatch(const OpArgs& args, const Body& body) const {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      bool wide = spec_.head_size() % n == 0;
      for (const Tensor* t : {&args.src[0], &args.dst, &args.diff_dst, &args.diff_src[0]})
        wide = wide && aligned(t->as<T>(), n);
      wide ? body(zero, std::integral_constant<int, n>{}) : body(zero, std::integral_constant<int, 1>{});
    });
  }
  template <class Body>
  void with_parts(const Body& body) const {
    spec_.head_size() <= tile ? body(std::integral_constant<int, 1>{}) : body(std::integral_constant<int, 2>{});
  }

  AttentionSpec spec_;
  LaunchContext context_;
  Heads heads_{};
};

}  // namespace

void write_attention_seeds(const LaunchContext& context, const AttentionSpec& s, const OpArgs& args, std::int64_t rows,
                           AttentionSeed* seeds) {
  for_each(context, s.src[0] / rows,
           WriteSeed{seeds, args.src[1].as<std::int64_t>(), args.state, rng_key(s.seed, RngPurpose::dropout) + s.layer,
                     int(rows)});
}

std::unique_ptr<Op> make_attention(const AttentionSpec& spec, const LaunchContext& context) {
  spec.check();
  if (spec.window > 0) return make_cached_attention(spec, context);
  return std::make_unique<Attention>(spec, context);
}

}  // namespace millrace::cuda
