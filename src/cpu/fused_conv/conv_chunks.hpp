// Cuts a convolution into chunks whose tensors stay in the second-level cache. What the norms around it need is then
// computed while a chunk is there. A chunk is
//   pixels  if the kernel is 1x1 and has no stride
//   lines   of one image (lines of the result along the first spatial axis), if an image is too large. Chunks of an
//           image then share lines of the source.
//   images  otherwise.
#pragma once
#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

class ConvChunks {
 public:
  explicit ConvChunks(const ConvSpec&);

  // The convolution of a chunk, without what is shared with norms. The last chunk (of an image, if chunks are lines)
  // may be smaller.
  const ConvSpec& spec(bool last) const { return last ? last_ : chunk_; }
  std::int64_t count() const { return groups_ * of_group_; }
  // Chunks of a group (an image, if chunks are lines) must be computed in order.
  std::int64_t groups() const { return groups_; }
  std::int64_t of_group() const { return of_group_; }
  // Rows of the source, of one pixel each, at the end of a chunk that also begin the next one of its group.
  std::int64_t shared_rows() const { return shared_rows_; }

  // Where chunk `index` of group `group` is. All in rows of one pixel.
  struct Place {
    std::int64_t src = 0, rows = 0;     // of the whole source
    std::int64_t above = 0, below = 0;  // padding before and behind these rows, in the source of the chunk
    std::int64_t final_rows = 0;        // whose gradient no later chunk adds to: the first of `rows`
    std::int64_t dst = 0;               // in the whole result
    bool last = false;                  // of the specs
  };
  Place place(std::int64_t group, std::int64_t index) const;

 private:
  void by_lines(const ConvSpec&, std::int64_t lines);
  void by_units(const ConvSpec&, bool of_pixels);

  ConvSpec chunk_, last_;
  std::int64_t groups_ = 1, of_group_ = 1, shared_rows_ = 0;
  std::int64_t step_ = 0, image_rows_ = 0, pad_rows_ = 0;  // rows of the source: from chunk to chunk, of an image
};

// The same Spec without what is shared with norms.
ConvSpec without_norms(ConvSpec);

}  // namespace millrace::cpu
