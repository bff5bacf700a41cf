// SampleView: samples that are cut out of an array instead of being its rows. Nothing is materialised: a sample is the
// bytes of a box of the array.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/device/tensor.hpp"

namespace millrace {

// Of the data set x of each file, which is one array:
//   rows    sample i is row i, with row i of y.
//   patch   (H, W, C), or (C, H, W); y (H, W) holds labels, those of 1 and more being class label - 1. The samples are
//           the labelled pixels in the order of their positions, each the square around it. Outside of the scene it is
//           mirrored, the pixel at the edge not repeated.
//   pair    (T, ...): row t, whose target is row t + lead of the same file, scaled and normalised as x is.
//   tokens  (N), or (R, N) of which each row is a text of its own; integers of 8, 16 or 32 bits. Sample i of a text is
//           tokens [i stride, i stride + window), its label the token behind them. What is left at the end of a text
//           is no sample.
enum class SampleKind { rows, patch, pair, tokens };

struct SampleView {
  SampleKind sample = SampleKind::rows;
  std::int64_t patch = 0;  // patch: side of the square, odd
  // patch: share of the labelled pixels that are kept for validation, in square blocks of the scene. Pixels whose patch
  // would overlap the patch of one of them are in neither part.
  double holdout = 0;
  std::int64_t lead = 1;                // pair: rows
  std::int64_t window = 0, stride = 1;  // tokens
  // tokens: they are below it, which is checked of each one that is read; 0: the file's attribute `classes`, else one
  // more than the largest in the files, all of which rank 0 then reads at the start.
  std::int64_t vocabulary = 0;

  void check() const;       // Error(config) naming the key
  std::string str() const;  // "patches of 9x9"; what a checkpoint compares
};

// Samples in each text of an array of tokens.
std::int64_t windows_of(const Shape& array, const SampleView&);

}  // namespace millrace
