// Layer norm and RMS norm. A block computes whole positions, one after the other; its threads hold a pack of
// consecutive channels each. Forward reads src once. Backward reads src and diff_dst once; every block adds up its part
// of the gradients of gamma and beta in registers, and column_sums() adds the parts.
//
// Positions that are wider than what the registers of a block hold are read again from the cache, and their parts of
// the weight gradients are added up in memory.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/row_loss.hpp"

namespace millrace::cuda {
namespace {

constexpr int layer_norm_threads = 1024;

struct Positions {
  std::int64_t count;
  int channels;
  bool layer;  // false: RMS norm
  float epsilon;
};

// gamma: null if it is 1.
template <int n>
MR_DEVICE_INLINE void load_gamma(float (&to)[n], const float* gamma, int channel) {
  if (gamma) {
    load(to, gamma + channel);
  } else {
    for (int k = 0; k < n; ++k) to[k] = 1;
  }
}

// Moments of one position. x: the values of this thread if `once`, i.e. every thread has at most one pack.
template <class T, int n, bool once>
struct Forward {
  Positions positions;
  T* dst;
  const T* src;
  const float *gamma, *beta;
  float *mean, *inverse;  // null in Mode::infer

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int first = block.thread() * n, step = block.threads() * n;
    for (std::int64_t p = block.index(); p < positions.count; p += block.blocks()) {
      const T* from = src + p * positions.channels;
      float x[n];
      const auto each = [&](const auto& body) {
        if constexpr (once) {
          if (first < positions.channels) body(first);
        } else {
          for (int c = first; c < positions.channels; c += step) {
            load(x, from + c);
            body(c);
          }
        }
      };
      if constexpr (once)
        if (first < positions.channels) load(x, from + first);
      float m = 0;
      if (positions.layer) {
        float sum = 0;
        each([&](int) {
          for (int k = 0; k < n; ++k) sum += x[k];
        });
        m = block.sum(sum) / float(positions.channels);
      }
      float squares = 0;
      each([&](int) {
        for (int k = 0; k < n; ++k) squares += (x[k] - m) * (x[k] - m);
      });
      const float scale = 1 / sqrtf(block.sum(squares) / float(positions.channels) + positions.epsilon);
      if (inverse && block.thread() == 0) {
        mean[p] = m;
        inverse[p] = scale;
      }
      each([&](int c) {
        float g[n], y[n];
        load_gamma(g, gamma, c);
        for (int k = 0; k < n; ++k) y[k] = (x[k] - m) * scale * g[k];
        if (beta) {
          load(g, beta + c);
          for (int k = 0; k < n; ++k) y[k] += g[k];
        }
        store(dst + p * positions.channels + c, y);
      });
    }
  }
};

template <class T, int n, bool once>
struct Backward {
  Positions positions;
  T* diff_src;  // null: not wanted
  bool adds;    // to diff_src
  const T *src, *diff_dst;
  const float *gamma, *mean, *inverse;
  float *diff_gamma, *diff_beta;  // (blocks, channels) each; null: not wanted

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int first = block.thread() * n, step = block.threads() * n;
    float of_gamma[n], of_beta[n];
    for (int k = 0; k < n; ++k) of_gamma[k] = of_beta[k] = 0;
    bool begun = false;
    for (std::int64_t p = block.index(); p < positions.count; p += block.blocks(), begun = true) {
      const T *x_from = src + p * positions.channels, *dy_from = diff_dst + p * positions.channels;
      const float m = mean[p], scale = inverse[p];
      float x[n], dy[n], g[n];  // x: normalised; g: dy * gamma
      const auto read = [&](int c) {
        load(x, x_from + c);
        load(dy, dy_from + c);
        load_gamma(g, gamma, c);
        for (int k = 0; k < n; ++k) {
          x[k] = (x[k] - m) * scale;
          g[k] *= dy[k];
        }
      };
      const auto each = [&](const auto& body) {
        if constexpr (once) {
          if (first < positions.channels) body(first);
        } else {
          for (int c = first; c < positions.channels; c += step) {
            read(c);
            body(c);
          }
        }
      };
      if constexpr (once)
        if (first < positions.channels) read(first);
      float sum_g = 0, sum_gx = 0;
      each([&](int c) {
        for (int k = 0; k < n; ++k) {
          sum_g += g[k];
          sum_gx += g[k] * x[k];
        }
        if constexpr (once) {
          for (int k = 0; k < n; ++k) {
            of_gamma[k] += dy[k] * x[k];
            of_beta[k] += dy[k];
          }
        } else {
          add_to_memory(block.index() * positions.channels + c, begun, dy, x);
        }
      });
      if (!diff_src) continue;
      const float mean_g = positions.layer ? block.sum(sum_g) / float(positions.channels) : 0;
      const float mean_gx = block.sum(sum_gx) / float(positions.channels);
      each([&](int c) {
        float dx[n];
        for (int k = 0; k < n; ++k) dx[k] = (g[k] - mean_g - x[k] * mean_gx) * scale;
        write_or_add(diff_src + p * positions.channels + c, dx);
      });
    }
    if (!once || first >= positions.channels) return;
    const std::int64_t at = block.index() * positions.channels + first;
    if (diff_gamma) store(diff_gamma + at, of_gamma);
    if (diff_beta) store(diff_beta + at, of_beta);
  }

 private:
  MR_DEVICE_INLINE void write_or_add(T* to, float (&dx)[n]) const {
    if (adds) {
      float before[n];
      load(before, to);
      for (int k = 0; k < n; ++k) dx[k] += before[k];
    }
    store(to, dx);
  }
  MR_DEVICE_INLINE void add_to_memory(std::int64_t at, bool begun, const float (&dy)[n], const float (&x)[n]) const {
    for (int k = 0; k < n; ++k) {
      if (diff_gamma) diff_gamma[at + k] = (begun ? diff_gamma[at + k] : 0) + dy[k] * x[k];
      if (diff_beta) diff_beta[at + k] = (begun ? diff_beta[at + k] : 0) + dy[k];
    }
  }
};

class LayerNorm : public Op {
 public:
  LayerNorm(const LayerNormSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    if (spec_.src.count() == 0) fail(Exit::config, "layer norm: input {} is empty", spec_.src.str());
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      wide_ = spec_.channels() % pack_size<T> == 0;
      packs_ = wide_ ? spec_.channels() / pack_size<T> : spec_.channels();
    });
    positions_ = {spec_.positions(), int(spec_.channels()), spec_.kind == LayerNormSpec::Kind::layer, spec_.epsilon};
    threads_ = even_threads(packs_, layer_norm_threads);
    const std::int64_t resident = std::clamp(2048 / threads_, 1, 16);
    blocks_ = std::min<std::int64_t>(positions_.count, resident * context_.multiprocessors);
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    needs.saved = std::size_t(2 * positions_.count) * sizeof(float);
    needs.workspace = std::size_t(2 * blocks_ * spec_.channels()) * sizeof(float) +
                      column_sums_bytes(blocks_, spec_.channels(), context_);
    return needs;
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    float* mean = spec_.mode == Mode::train ? static_cast<float*>(args.saved) : nullptr;
    dispatch([&](auto zero, auto n, auto once) {
      using T = decltype(zero);
      launch<layer_norm_threads, 1>(
          context_, blocks_, threads_, 0,
          Forward<T, n, once>{positions_, args.dst.as<T>(), args.src[0].as<T>(), args.weight[0].as<float>(),
                              args.weight[1].as<float>(), mean, mean ? mean + positions_.count : nullptr});
    });
  }

  void backward(const OpArgs& args) override {
    const float* mean = static_cast<const float*>(args.saved);
    float* const of_gamma = static_cast<float*>(args.workspace);
    float* const of_beta = of_gamma + blocks_ * spec_.channels();
    dispatch([&](auto zero, auto n, auto once) {
      using T = decltype(zero);
      launch<layer_norm_threads, 1>(
          context_, blocks_, threads_, 0,
          Backward<T, n, once>{positions_, args.diff_src[0].as<T>(), spec_.accumulates_diff_src, args.src[0].as<T>(),
                               args.diff_dst.as<T>(), args.weight[0].as<float>(), mean, mean + positions_.count,
                               args.diff_weight[0] ? of_gamma : nullptr, args.diff_weight[1] ? of_beta : nullptr});
    });
    for (int w = 0; w < 2; ++w)
      if (args.diff_weight[std::size_t(w)])
        column_sums(context_, args.diff_weight[std::size_t(w)].as<float>(),
                    {w == 0 ? of_gamma : of_beta, DType::f32, blocks_, spec_.channels()}, args.mode[std::size_t(w)],
                    of_beta + blocks_ * spec_.channels());
  }

 private:
  // Calls body(T{}, elements of a pack, whether every thread has at most one pack).
  template <class Body>
  void dispatch(const Body& body) const {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto with_width = [&](auto n) {
        packs_ <= layer_norm_threads ? body(zero, n, std::true_type{}) : body(zero, n, std::false_type{});
      };
      wide_ ? with_width(std::integral_constant<int, pack_size<T>>{}) : with_width(std::integral_constant<int, 1>{});
    });
  }

  LayerNormSpec spec_;
  LaunchContext context_;
  Positions positions_{};
  bool wide_ = false;
  std::int64_t packs_ = 0, blocks_ = 0;
  int threads_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_layer_norm(const LayerNormSpec& spec, const LaunchContext& context) {
  return std::make_unique<LayerNorm>(spec, context);
}

}  // namespace millrace::cuda
