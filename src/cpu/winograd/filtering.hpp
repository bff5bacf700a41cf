// Winograd's minimal filtering F(m x m, 3 x 3): m x m results of a 3x3 convolution from a tile of (m + 2) x (m + 2)
// pixels with (m + 2)^2 multiplications, instead of 9 m^2. A tile d and a filter g are transformed, multiplied element
// by element, and transformed back: y = A' [(G g G') * (B' d B)] A (Lavin and Gray 2016, "Fast Algorithms for
// Convolutional Neural Networks"). The gradient of the filter is the transposed computation:
// diff_g = G' [(A diff_y A') * (B' d B)] G.
//
// The structs here are the transforms of one dimension for a register of channels. They are those of the polynomial
// interpolation at the points 0, 1, -1 and infinity for m = 2, and 0, a, -a, b, -b and infinity for m = 4. The usual
// points are a = 1 and b = 2; with a = 3/4 and b = 3/2 the mean error is half of theirs and the largest a quarter
// (docs/benchmarks/2026-11-winograd.md).
// All constants of input() and output() are exact in float32.
#pragma once

namespace millrace::cpu::winograd {

#define MR_INLINE __attribute__((always_inline)) static inline

// F(2, 3)
struct Filtering2 {
  static constexpr int m = 2, tile = 4;

  // B' d
  struct Input {
    static constexpr int in = 4, out = 4;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&t)[4], const Lanes (&d)[4]) {
      t[0] = d[0] - d[2];
      t[1] = d[1] + d[2];
      t[2] = d[2] - d[1];
      t[3] = d[1] - d[3];
    }
  };
  // G g
  struct Filter {
    static constexpr int in = 3, out = 4;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&t)[4], const Lanes (&g)[3]) {
      const Lanes even = 0.5f * (g[0] + g[2]), odd = 0.5f * g[1];
      t[0] = g[0];
      t[1] = even + odd;
      t[2] = even - odd;
      t[3] = g[2];
    }
  };
  // A' y
  struct Output {
    static constexpr int in = 4, out = 2;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&y)[2], const Lanes (&t)[4]) {
      y[0] = t[0] + t[1] + t[2];
      y[1] = t[1] - t[2] - t[3];
    }
  };
  // A diff_y
  struct DiffOutput {
    static constexpr int in = 2, out = 4;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&t)[4], const Lanes (&y)[2]) {
      t[0] = y[0];
      t[1] = y[0] + y[1];
      t[2] = y[0] - y[1];
      t[3] = -y[1];
    }
  };
  // G' t
  struct DiffFilter {
    static constexpr int in = 4, out = 3;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&g)[3], const Lanes (&t)[4]) {
      const Lanes sum = 0.5f * (t[1] + t[2]);
      g[0] = t[0] + sum;
      g[1] = 0.5f * (t[1] - t[2]);
      g[2] = sum + t[3];
    }
  };
};

// F(4, 3)
struct Filtering4 {
  static constexpr int m = 4, tile = 6;
  static constexpr float a = 0.75f, b = 1.5f, a2 = a * a, b2 = b * b, a3 = a * a2, b3 = b * b2;
  // 1 over the product of the differences of a point and the other ones
  static constexpr float at_0 = float(1 / (double(a2) * b2)), at_a = float(1 / (2 * double(a2) * (a2 - b2))),
                         at_b = float(1 / (2 * double(b2) * (b2 - a2)));

  struct Input {
    static constexpr int in = 6, out = 6;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&t)[6], const Lanes (&d)[6]) {
      const Lanes even_a = d[4] - b2 * d[2], odd_a = d[3] - b2 * d[1];
      const Lanes even_b = d[4] - a2 * d[2], odd_b = d[3] - a2 * d[1];
      t[0] = (a2 * b2) * d[0] - (a2 + b2) * d[2] + d[4];
      t[1] = even_a + a * odd_a;
      t[2] = even_a - a * odd_a;
      t[3] = even_b + b * odd_b;
      t[4] = even_b - b * odd_b;
      t[5] = (a2 * b2) * d[1] - (a2 + b2) * d[3] + d[5];
    }
  };
  struct Filter {
    static constexpr int in = 3, out = 6;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&t)[6], const Lanes (&g)[3]) {
      const Lanes even_a = at_a * g[0] + (at_a * a2) * g[2], odd_a = (at_a * a) * g[1];
      const Lanes even_b = at_b * g[0] + (at_b * b2) * g[2], odd_b = (at_b * b) * g[1];
      t[0] = at_0 * g[0];
      t[1] = even_a + odd_a;
      t[2] = even_a - odd_a;
      t[3] = even_b + odd_b;
      t[4] = even_b - odd_b;
      t[5] = g[2];
    }
  };
  struct Output {
    static constexpr int in = 6, out = 4;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&y)[4], const Lanes (&t)[6]) {
      const Lanes even_a = t[1] + t[2], odd_a = t[1] - t[2], even_b = t[3] + t[4], odd_b = t[3] - t[4];
      y[0] = t[0] + even_a + even_b;
      y[1] = a * odd_a + b * odd_b;
      y[2] = a2 * even_a + b2 * even_b;
      y[3] = a3 * odd_a + b3 * odd_b + t[5];
    }
  };
  struct DiffOutput {
    static constexpr int in = 4, out = 6;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&t)[6], const Lanes (&y)[4]) {
      const Lanes even_a = y[0] + a2 * y[2], odd_a = a * y[1] + a3 * y[3];
      const Lanes even_b = y[0] + b2 * y[2], odd_b = b * y[1] + b3 * y[3];
      t[0] = y[0];
      t[1] = even_a + odd_a;
      t[2] = even_a - odd_a;
      t[3] = even_b + odd_b;
      t[4] = even_b - odd_b;
      t[5] = y[3];
    }
  };
  struct DiffFilter {
    static constexpr int in = 6, out = 3;
    template <class Lanes>
    MR_INLINE void apply(Lanes (&g)[3], const Lanes (&t)[6]) {
      const Lanes even_a = at_a * (t[1] + t[2]), odd_a = at_a * (t[1] - t[2]);
      const Lanes even_b = at_b * (t[3] + t[4]), odd_b = at_b * (t[3] - t[4]);
      g[0] = at_0 * t[0] + even_a + even_b;
      g[1] = a * odd_a + b * odd_b;
      g[2] = a2 * even_a + b2 * even_b + t[5];
    }
  };
};

#undef MR_INLINE

}  // namespace millrace::cpu::winograd
