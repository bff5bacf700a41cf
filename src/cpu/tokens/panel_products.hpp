// What the products of attention by own tiles have in common for all types. K^T and V^T of a head lie in panels of
// columns, and K and V too, so that all blocks of queries read them as they are.
#pragma once
#include <cstring>
#include <utility>

#include "cpu/common/bits.hpp"
#include "cpu/tokens/attention_products.hpp"

namespace millrace::cpu::attention {

template <class T>
class PanelProducts : public HeadProducts {
 public:
  std::size_t scratch_bytes() const override { return bytes_; }

  void begin_keys(const void* keys, const void* values, void* scratch) override {
    scratch_ = static_cast<std::byte*>(scratch);
    keys_source_ = static_cast<const T*>(keys);
    values_source_ = static_cast<const T*>(values);
    backward_ = false;
    pack_turned(keys_turned_at_, keys_source_);
    pack_rows(values_at_, values_source_, stride_, positions_);
  }
  void begin_queries(std::int64_t count, const void* queries, const void* diff) override {
    copy(queries_at_, queries, stride_, count);
    if (!diff) return;
    copy(diff_at_, diff, out_, count);
    pack_rows(query_panels_at_, part(queries_at_), size_, count);
    pack_rows(diff_panels_at_, part(diff_at_), size_, count);
    if (std::exchange(backward_, true)) return;
    pack_turned(values_turned_at_, values_source_);
    pack_rows(keys_at_, keys_source_, stride_, positions_);
  }

  void scores(const ScoreBlock& b, float* to) override { against_keys(b, queries_at_, keys_turned_at_, to); }
  void weighted(const ScoreBlock& b, const void* p, float* sums) override { over_keys(b, p, values_at_, sums); }
  void diff_probabilities(const ScoreBlock& b, float* diff) override {
    against_keys(b, diff_at_, values_turned_at_, diff);
  }
  void diff_value(const ScoreBlock& b, const void* p, float* diff) override {
    over_queries(b, p, diff_panels_at_, diff);
  }
  void diff_query(const ScoreBlock& b, const void* ds, float* diff) override { over_keys(b, ds, keys_at_, diff); }
  void diff_key(const ScoreBlock& b, const void* ds, float* diff) override {
    over_queries(b, ds, query_panels_at_, diff);
  }

 protected:
  explicit PanelProducts(const AttentionSpec& s)
      : positions_(s.positions()),
        size_(s.head_size()),
        stride_(s.src[-1]),
        out_(s.heads * size_),
        train_(s.mode == Mode::train) {}

  // Elements of the panels of K^T, of those of K, and of the panels of a block of queries. The constructor calls this.
  void reserve_panels(std::int64_t turned, std::int64_t rows, std::int64_t queries, std::int64_t query_panels) {
    keys_turned_at_ = reserve(turned, true);
    values_at_ = reserve(rows, true);
    values_turned_at_ = reserve(turned, train_);
    keys_at_ = reserve(rows, train_);
    queries_at_ = reserve(queries * size_, true);
    diff_at_ = reserve(queries * size_, train_);
    query_panels_at_ = reserve(query_panels, train_);
    diff_panels_at_ = reserve(query_panels, train_);
  }
  std::size_t reserve(std::int64_t elements, bool needed) {
    const std::size_t begin = bytes_;
    if (needed) bytes_ += align64(std::size_t(elements) * sizeof(T));
    return begin;
  }
  T* part(std::size_t at) const { return reinterpret_cast<T*>(scratch_ + at); }
  // Calls f(first, count) for the tiles of rows.
  template <class F>
  static void each_tile(std::int64_t rows, std::int64_t most, const F& f) {
    for (std::int64_t r = 0; r < rows; r += most) f(r, std::min(most, rows - r));
  }

  // Panels of all positions, with the features as the depth.
  virtual void pack_turned(std::size_t to, const T* from) const = 0;
  // Panels of features, with the rows as the depth. stride: elements from one row to the next.
  virtual void pack_rows(std::size_t to, const T* from, std::int64_t stride, std::int64_t rows) const = 0;
  // to(query, key) = the sum over the head of rows(query, i) * turned(i, key)
  virtual void against_keys(const ScoreBlock&, std::size_t rows, std::size_t turned, float* to) const = 0;
  // to(query, i) += the sum over the keys of factors(query, key) * values(key, i)
  virtual void over_keys(const ScoreBlock&, const void* factors, std::size_t values, float* to) const = 0;
  // to(key, i) += the sum over the queries of factors(query, key) * values(query, i)
  virtual void over_queries(const ScoreBlock&, const void* factors, std::size_t values, float* to) const = 0;

  const std::int64_t positions_, size_, stride_, out_;  // stride_, out_: from one position to the next in src and dst
  const bool train_;

 private:
  // Rows side by side: at a distance that is a multiple of 4 KiB they would evict each other.
  void copy(std::size_t to, const void* from, std::int64_t stride, std::int64_t count) const {
    for (std::int64_t q = 0; q < count; ++q)
      std::memcpy(part(to) + q * size_, static_cast<const T*>(from) + q * stride, std::size_t(size_) * sizeof(T));
  }

  std::size_t bytes_ = 0, keys_turned_at_, values_at_, values_turned_at_, keys_at_, queries_at_, diff_at_,
              query_panels_at_, diff_panels_at_;
  std::byte* scratch_ = nullptr;
  const T *keys_source_ = nullptr, *values_source_ = nullptr;
  bool backward_ = false;  // the panels for it hold this head
};

}  // namespace millrace::cpu::attention
