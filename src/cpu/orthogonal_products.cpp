#include "cpu/orthogonal_products.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "cpu/common/parallel.hpp"
#include "millrace/ops/optimizer.hpp"

namespace millrace::cpu {
namespace {

using onednn::Call, onednn::desc;

MR_TARGET_CLONES void write_scaled(float* __restrict to, const float* __restrict from, float by, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = by * from[i];
}
// square <- b * gram + c * square
MR_TARGET_CLONES void add_terms(float* __restrict square, const float* __restrict gram, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) square[i] = NewtonSchulz::b * gram[i] + NewtonSchulz::c * square[i];
}

Call product(const desc& src, const desc& factor, const desc& dst, bool add) {
  return onednn::checked("the products of muon",
                         [&] { return onednn::matmul_call(src, factor, desc(), dst, Activation::none, add); });
}

constexpr auto nothing = [](std::int64_t, std::int64_t) {};

}  // namespace

BlockedProduct::BlockedProduct(const Extents& e, const MatrixStrides& src, const MatrixStrides& factor, bool add)
    : extents_(e), src_(src), threads_(std::size_t(std::min<std::int64_t>(thread_count(), blocks()))) {
  const desc factors = onednn::strided({e.inner, e.columns}, DType::f32, {factor.row, factor.column});
  const auto make = [&](std::int64_t rows) {
    return product(onednn::strided({rows, e.inner}, DType::f32, {src.row, src.column}), factors,
                   onednn::plain({rows, e.columns}, DType::f32), add);
  };
  const Alone alone;  // oneDNN makes primitives for this number of threads
  const std::int64_t last = e.rows % block_rows;
  for (ThreadCalls& calls : threads_) {
    if (e.rows >= block_rows) calls.whole = make(block_rows);
    if (last > 0) calls.last = make(last);
    calls.scratch.resize(std::max(calls.whole.scratch_bytes(), calls.last.scratch_bytes()) + 64);
  }
}

void BlockedProduct::run_block(ThreadCalls& calls, std::int64_t block, float* src, float* factor, float* dst) {
  const std::int64_t first = block * block_rows;
  Call& call = first + block_rows <= extents_.rows ? calls.whole : calls.last;
  void* scratch = calls.scratch.data();
  std::size_t space = calls.scratch.size();
  call.bind_scratch(std::align(64, call.scratch_bytes(), scratch, space));
  call.bind(DNNL_ARG_SRC, src + first * src_.row);
  call.bind(DNNL_ARG_WEIGHTS, factor);
  call.bind(DNNL_ARG_DST, dst + first * extents_.columns);
  call.run();
}

template <class Before, class After>
void BlockedProduct::run(float* src, float* factor, float* dst, const Before& before, const After& after) {
  const int threads = thread_count();
  set_thread_count(int(threads_.size()));  // 1 for a single block, which runs outside of a parallel loop
  parallel_ranges(blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
    ThreadCalls& calls = threads_[std::size_t(thread_number())];
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * block_rows * extents_.columns;
      const std::int64_t count = std::min(block_rows * extents_.columns, extents_.rows * extents_.columns - first);
      before(first, count);
      run_block(calls, block, src, factor, dst);
      after(first, count);
    }
  });
  set_thread_count(threads);
}

// gram_: X X^T, or X^T X if X has more rows than columns. square_: of the result. apply_: X' += B X or X B.
OrthogonalProducts::OrthogonalProducts(std::int64_t rows, std::int64_t columns)
    : tall_(rows > columns),
      gram_(tall_ ? BlockedProduct({columns, rows, columns}, {1, columns}, {columns, 1}, false)
                  : BlockedProduct({rows, columns, rows}, {columns, 1}, {1, columns}, false)),
      square_({std::min(rows, columns), std::min(rows, columns), std::min(rows, columns)}, {std::min(rows, columns), 1},
              {std::min(rows, columns), 1}, false),
      apply_(tall_ ? BlockedProduct({rows, columns, columns}, {columns, 1}, {columns, 1}, true)
                   : BlockedProduct({rows, rows, columns}, {rows, 1}, {columns, 1}, true)) {}

float* OrthogonalProducts::run(int steps, float* x, float* other, float* gram, float* polynomial) {
  for (int step = 0; step < steps; ++step) {
    gram_.run(x, x, gram, nothing, nothing);
    square_.run(gram, gram, polynomial, nothing,
                [&](std::int64_t at, std::int64_t count) { add_terms(polynomial + at, gram + at, count); });
    apply_.run(
        tall_ ? x : polynomial, tall_ ? polynomial : x, other,
        [&](std::int64_t at, std::int64_t count) { write_scaled(other + at, x + at, NewtonSchulz::a, count); },
        nothing);
    std::swap(x, other);
  }
  return x;
}

}  // namespace millrace::cpu
