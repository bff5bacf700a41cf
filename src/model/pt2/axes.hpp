// The axes of a PyTorch value, and the order in which millrace stores its elements.
//
// PyTorch's axes are lists of atoms: extents that are stored as a whole. An image (N, C, H, W) that millrace stores
// with its channels last has four axes of one atom each, and the stored order N, H, W, C. Permutations only reorder the
// axes. Views regroup the atoms and split some of them. Both are free. An operation needs certain atoms side by side in
// the stored order, and says so when they are not.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/device/tensor.hpp"

namespace millrace::pt2 {

// Stands for the number of rows in all extents, so that a view can tell the rows from other extents. It is a prime, so
// no view divides it.
inline constexpr std::int64_t rows_symbol = 1000003;

using Sizes = std::vector<std::int64_t>;
using Atoms = std::vector<int>;

struct Axes {
  Sizes extents;               // by atom; none is 1
  std::vector<Atoms> logical;  // PyTorch's axes, the outermost atom first; an axis of extent 1 has none
  Atoms stored;                // outermost first
  // Atoms of `stored` that are in no axis, because one index of them was selected.
  std::vector<std::pair<int, std::int64_t>> selected;

  // Stored in the order of the axes.
  static Axes contiguous(const Sizes&);
  // (rows, channels, spatial...), stored with the channels last.
  static Axes image(std::int64_t channels, const Sizes& spatial);

  int rank() const { return int(logical.size()); }
  std::int64_t size(int axis) const;
  std::int64_t count(const Atoms&) const;
  Sizes sizes() const;
  std::string text() const;  // "(N, 3, 32, 32)"

  void permute(const std::vector<int>& order);
  // false: the sizes have another product, or divide the rows. -1 is not accepted.
  bool view(const Sizes&);
  // The same, where the extents cut across axes that lie side by side in the stored order too.
  bool view_across(const Sizes&);
  void erase_axis(int axis);
  void insert_axis(int axis) { logical.insert(logical.begin() + axis, Atoms{}); }
  // Takes the element `index` of an axis, which disappears.
  void select(int axis, std::int64_t index);
  // The axis gets one new atom of this extent, in the place of its first atom in the stored order. at: the place, if
  // the axis has no atoms; -1: the end.
  void replace_axis(int axis, std::int64_t extent, int at = -1);
  // The first axis is the rows and nothing else, and the rows are stored outermost.
  bool begins_with_rows() const;

  // Splits atoms of both so that each axis has atoms of the same extents in both. false: that is not possible. Axes of
  // extent 1 in one of them are left out if `broadcast`.
  friend bool align(Axes&, Axes&, bool broadcast);

 private:
  int add_atom(std::int64_t extent);
  void split(int atom, std::int64_t outer, Atoms& list);
};

// `all` without these atoms.
Atoms without(const Atoms& all, const Atoms& these);
// Of the same axes with the same atoms: atoms of one value by those of the other.
Atoms translated(const Atoms&, const Axes& from, const Axes& to);
// With axes of extent 1 in front, as broadcasting has them.
Axes with_rank(Axes, int rank);
// Whether `part` is the end of `all`, in the same order.
bool is_suffix(const Atoms& part, const Atoms& all);
// The position of `part` in `all`, where it lies in the same order without a gap; -1: nowhere.
int find_block(const Atoms& part, const Atoms& all);
Atoms concatenated(std::initializer_list<Atoms>);
// 3 of a negative axis number -1, for 4 axes. Error(data): there is no such axis.
int axis_number(std::int64_t axis, int rank);

}  // namespace millrace::pt2
