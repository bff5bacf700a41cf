// The Newton-Schulz steps of Muon in double, as torch.optim.Muon defines them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace millrace::reference {

using Matrix = std::vector<double>;  // row-major

inline Matrix transposed(const Matrix& x, std::size_t rows, std::size_t columns) {
  Matrix out(x.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) out[c * rows + r] = x[r * columns + c];
  return out;
}

// a b, where a has `rows` rows and b has `inner`.
inline Matrix product(const Matrix& a, const Matrix& b, std::size_t rows, std::size_t inner) {
  const std::size_t columns = b.size() / inner;
  Matrix out(rows * columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t k = 0; k < inner; ++k)
      for (std::size_t c = 0; c < columns; ++c) out[r * columns + c] += a[r * inner + k] * b[k * columns + c];
  return out;
}

inline Matrix newton_schulz(Matrix x, std::size_t rows, std::size_t columns, int steps) {
  if (rows > columns)
    return transposed(newton_schulz(transposed(x, rows, columns), columns, rows, steps), columns, rows);
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < steps; ++step) {
    const Matrix gram = product(x, transposed(x, rows, columns), rows, columns);
    Matrix polynomial = product(gram, gram, rows, rows);
    for (std::size_t i = 0; i < gram.size(); ++i) polynomial[i] = -4.7750 * gram[i] + 2.0315 * polynomial[i];
    const Matrix correction = product(polynomial, x, rows, rows);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + correction[i];
  }
  return x;
}

}  // namespace millrace::reference
