// SampleView: how samples are cut out of an array, if they are not its rows. A sample is read as a hyperslab of the
// array; no copies are stored.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/device/tensor.hpp"

namespace millrace {

// x is one array in each file:
//   rows    Sample i is row i, with row i of y.
//   patch   x is (H, W, C) or (C, H, W). y is (H, W) and holds labels: a number n >= 1 is class n - 1, others mark
//   pixels
//           without a label. Each labelled pixel, in the order of positions, gives a sample: the square around it.
//           Outside of the scene the square is mirrored, without repetition of the pixel at the edge.
//   pair    x is (T, ...). Sample t is row t; its target is row t + lead of the same file, scaled and normalised like
//   x. tokens  x is (N), or (R, N) where each row is one text; integers of 8, 16 or 32 bits. Sample i of a text is the
//   tokens
//           [i * stride, i * stride + window). Its label is the next token, or each of its tokens has the next one as
//           its label (TokenLabels). An incomplete window at the end of a text is dropped.
enum class SampleKind { rows, patch, pair, tokens };
enum class TokenLabels { last, every };

struct SampleView {
  SampleKind sample = SampleKind::rows;
  std::int64_t patch = 0;  // patch: side of the square in pixels, odd
  // patch: fraction of the labelled pixels that is held out for validation, in square blocks of the scene. Pixels whose
  // patch overlaps the patch of a held-out pixel are in neither part.
  double holdout = 0;
  std::int64_t lead = 1;                // pair: distance of the target, in rows
  std::int64_t window = 0, stride = 1;  // tokens: length of a sample, distance between two samples
  // tokens: number of different tokens; each token that is read is checked to be below it. 0: the file's attribute
  // `classes`, else one more than the largest token, for which rank 0 reads all files at the start.
  std::int64_t vocabulary = 0;
  TokenLabels token_labels = TokenLabels::last;

  void check() const;       // Error(config) names the configuration key
  std::string str() const;  // "patches of 9x9"; a resumed run must have the same text
};

// Number of samples in each text of an array of tokens.
std::int64_t windows_of(const Shape& array, const SampleView&);

}  // namespace millrace
