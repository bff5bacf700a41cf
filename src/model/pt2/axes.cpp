#include "model/pt2/axes.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace::pt2 {

int Axes::add_atom(std::int64_t extent) {
  extents.push_back(extent);
  return int(extents.size()) - 1;
}

Axes Axes::contiguous(const Sizes& sizes) {
  Axes out;
  for (const std::int64_t size : sizes) {
    out.logical.emplace_back();
    if (size == 1) continue;
    out.stored.push_back(out.add_atom(size));
    out.logical.back().push_back(out.stored.back());
  }
  return out;
}

Axes Axes::image(std::int64_t channels, const Sizes& spatial) {
  Sizes sizes{rows_symbol};
  sizes.insert(sizes.end(), spatial.begin(), spatial.end());
  sizes.push_back(channels);
  Axes out = contiguous(sizes);
  std::rotate(out.logical.begin() + 1, out.logical.end() - 1, out.logical.end());
  return out;
}

std::int64_t Axes::count(const Atoms& atoms) const {
  std::int64_t count = 1;
  for (const int atom : atoms)
    if (__builtin_mul_overflow(count, extents[std::size_t(atom)], &count))
      fail(Exit::data, "a value has more than 2^63 elements");
  return count;
}

std::int64_t Axes::size(int axis) const { return count(logical[std::size_t(axis)]); }

Sizes Axes::sizes() const {
  Sizes out;
  for (int axis = 0; axis < rank(); ++axis) out.push_back(size(axis));
  return out;
}

std::string Axes::text() const {
  std::string out;
  for (const std::int64_t size : sizes()) {
    const std::int64_t factor = size / rows_symbol;
    out += (out.empty() ? "" : ", ") + (size % rows_symbol ? std::to_string(size)
                                        : factor == 1      ? "N"
                                                           : "N x " + std::to_string(factor));
  }
  return "(" + out + ")";
}

void Axes::permute(const std::vector<int>& order) {
  std::vector<Atoms> out;
  for (const int axis : order) out.push_back(logical[std::size_t(axis)]);
  logical = std::move(out);
}

// The atom keeps the outer part; the inner part follows it in the stored order and in `list`.
void Axes::split(int atom, std::int64_t outer, Atoms& list) {
  const int inner = add_atom(extents[std::size_t(atom)] / outer);
  extents[std::size_t(atom)] = outer;
  for (Atoms* atoms : {&stored, &list})
    if (const auto at = std::ranges::find(*atoms, atom); at != atoms->end()) atoms->insert(at + 1, inner);
}

bool Axes::view(const Sizes& sizes) {
  Axes out = *this;
  Atoms rest;
  for (const Atoms& axis : logical) rest.insert(rest.end(), axis.begin(), axis.end());
  out.logical.clear();
  std::size_t at = 0;
  for (const std::int64_t size : sizes) {
    Atoms axis;
    for (std::int64_t needed = size; needed != 1; ++at) {
      if (at == rest.size() || needed < 1) return false;
      const std::int64_t extent = out.extents[std::size_t(rest[at])];
      if (extent == 0) return false;
      if (needed % extent != 0) {
        if (extent == rows_symbol || needed == 0 || extent % needed != 0) return false;
        out.split(rest[at], needed, rest);
        needed = 1;
      } else {
        needed /= extent;
      }
      axis.push_back(rest[at]);
    }
    out.logical.push_back(std::move(axis));
  }
  if (at != rest.size()) return false;
  *this = std::move(out);
  return true;
}

bool Axes::view_across(const Sizes& sizes) {
  Axes out = *this;
  Atoms all;
  for (const Atoms& axis : logical)
    for (const int atom : axis) {
      const auto at = std::ranges::find(out.stored, atom);
      const bool follows =
          !all.empty() && at != out.stored.begin() && at != out.stored.end() && *(at - 1) == all.back();
      const bool rows = follows && (out.extents[std::size_t(all.back())] == rows_symbol ||
                                    out.extents[std::size_t(atom)] == rows_symbol);
      if (follows && !rows) {
        out.extents[std::size_t(all.back())] = out.count({all.back(), atom});
        out.stored.erase(at);
      } else {
        all.push_back(atom);
      }
    }
  out.logical = {all};
  if (!out.view(sizes)) return false;
  *this = std::move(out);
  return true;
}

void Axes::erase_axis(int axis) { logical.erase(logical.begin() + axis); }

void Axes::select(int axis, std::int64_t index) {
  const Atoms atoms = logical[std::size_t(axis)];
  for (auto atom = atoms.rbegin(); atom != atoms.rend(); ++atom) {
    const std::int64_t extent = extents[std::size_t(*atom)];
    selected.emplace_back(*atom, index % extent);
    index /= extent;
  }
  erase_axis(axis);
}

void Axes::replace_axis(int axis, std::int64_t extent, int at) {
  Atoms& atoms = logical[std::size_t(axis)];
  if (!atoms.empty()) {
    at = int(std::ranges::find(stored, atoms[0]) - stored.begin());
    std::erase_if(stored, [&](int atom) { return std::ranges::find(atoms, atom) != atoms.end(); });
  }
  atoms.clear();
  if (extent == 1) return;
  atoms.push_back(add_atom(extent));
  const int end = int(stored.size());
  stored.insert(stored.begin() + (at < 0 || at > end ? end : at), atoms[0]);
}

bool Axes::begins_with_rows() const {
  return !logical.empty() && logical[0].size() == 1 && !stored.empty() && stored[0] == logical[0][0] &&
         extents[std::size_t(stored[0])] == rows_symbol;
}

bool align(Axes& a, Axes& b, bool broadcast) {
  if (a.rank() != b.rank()) return false;
  for (int axis = 0; axis < a.rank(); ++axis) {
    Atoms &left = a.logical[std::size_t(axis)], &right = b.logical[std::size_t(axis)];
    if (broadcast && (left.empty() || right.empty())) continue;
    std::size_t at = 0;
    for (; at < left.size() && at < right.size(); ++at) {
      const std::int64_t x = a.extents[std::size_t(left[at])], y = b.extents[std::size_t(right[at])];
      if (x > y && y != rows_symbol && x != rows_symbol && x % y == 0)
        a.split(left[at], y, left);
      else if (y > x && x != rows_symbol && y != rows_symbol && y % x == 0)
        b.split(right[at], x, right);
      else if (x != y)
        return false;
    }
    if (left.size() != right.size()) return false;
  }
  return true;
}

Atoms without(const Atoms& all, const Atoms& these) {
  Atoms out = all;
  std::erase_if(out, [&](int atom) { return std::ranges::find(these, atom) != these.end(); });
  return out;
}

bool is_suffix(const Atoms& part, const Atoms& all) {
  return part.size() <= all.size() && std::equal(part.rbegin(), part.rend(), all.rbegin());
}

int find_block(const Atoms& part, const Atoms& all) {
  const auto found = std::search(all.begin(), all.end(), part.begin(), part.end());
  return found == all.end() && !part.empty() ? -1 : int(found - all.begin());
}

Atoms concatenated(std::initializer_list<Atoms> lists) {
  Atoms out;
  for (const Atoms& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

Atoms translated(const Atoms& atoms, const Axes& from, const Axes& to) {
  Atoms out;
  for (const int atom : atoms)
    for (std::size_t axis = 0; axis < from.logical.size(); ++axis) {
      const Atoms& list = from.logical[axis];
      const auto at = std::ranges::find(list, atom);
      if (at != list.end() && !to.logical[axis].empty())
        out.push_back(to.logical[axis][std::size_t(at - list.begin())]);
    }
  return out;
}

Axes with_rank(Axes axes, int rank) {
  while (axes.rank() < rank) axes.insert_axis(0);
  return axes;
}

int axis_number(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) fail(Exit::data, "there is no axis {} of {} axes", axis, rank);
  return int(axis < 0 ? axis + rank : axis);
}

}  // namespace millrace::pt2
