// einsum of two values whose rows are an axis of both: a product of matrices.
#include <fmt/core.h>

#include <algorithm>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

struct Equation {
  std::string text, left, right, result;  // a letter for each axis
};

Equation equation_of(const Call& call) {
  Equation out;
  for (const char letter : call.text("equation", ""))
    if (letter != ' ') out.text += letter;
  const std::size_t comma = out.text.find(','), arrow = out.text.find("->");
  if (comma == out.text.npos || arrow == out.text.npos || comma > arrow)
    call.refuse(fmt::format("has the equation '{}'. products of two values, with ->, are supported", out.text));
  out.left = out.text.substr(0, comma);
  out.right = out.text.substr(comma + 1, arrow - comma - 1);
  out.result = out.text.substr(arrow + 2);
  for (const std::string* letters : {&out.left, &out.right, &out.result})
    for (std::size_t i = 0; i < letters->size(); ++i)
      if (!std::isalpha(static_cast<unsigned char>((*letters)[i])) ||
          letters->find((*letters)[i], i + 1) != out.text.npos)
        call.refuse(
            fmt::format("has the equation '{}', which repeats a letter or has others. it is not supported", out.text));
  return out;
}

bool has(const std::string& letters, char letter) { return letters.find(letter) != letters.npos; }

struct Groups {
  std::string batch, left, right, summed;
};

Groups groups_of(const Call& call, const Equation& e) {
  Groups out;
  for (const char letter : e.result) {
    const bool in_left = has(e.left, letter), in_right = has(e.right, letter);
    if (!in_left && !in_right) call.refuse(fmt::format("has a result with axes of its own: '{}'", e.text));
    (in_left && in_right ? out.batch : in_left ? out.left : out.right) += letter;
  }
  for (const char letter : e.left + e.right) {
    if (has(e.result, letter)) continue;
    if (!has(e.left, letter) || !has(e.right, letter))
      call.refuse(fmt::format("sums '{}' of one value alone ('{}'), which is not supported", letter, e.text));
    if (!has(out.summed, letter)) out.summed += letter;
  }
  return out;
}

// The axes in the order of `letters`, of which the last two groups become one axis each.
Value arranged(const Call& call, Value x, const std::string& letters, const std::string& batch,
               const std::string& first, const std::string& second) {
  std::vector<int> order;
  for (const char letter : batch + first + second) order.push_back(int(letters.find(letter)));
  x.axes.permute(order);
  const Sizes all = x.axes.sizes();
  Sizes sizes(all.begin(), all.begin() + std::ptrdiff_t(batch.size()));
  std::size_t axis = batch.size();
  for (const std::string* group : {&first, &second}) {
    std::int64_t size = 1;
    for (std::size_t i = 0; i < group->size(); ++i) size *= all[axis++];
    sizes.push_back(size);
  }
  if (!x.axes.view(sizes)) call.refuse("joins axes that are divided in different ways");
  return x;
}

std::int64_t size_of(const std::string& letters, const Axes& axes, char letter) {
  return axes.size(int(letters.find(letter)));
}

Values einsum(Context& c, const Call& call) {
  const Equation e = equation_of(call);
  Groups g = groups_of(call, e);
  const Values operands = call.values("tensors");
  if (operands.size() != 2) call.refuse("is of another number of values than two, which is not supported");
  const Value &a = operands[0], &b = operands[1];
  for (const auto& [value, letters] : {std::pair{&a, &e.left}, {&b, &e.right}})
    if (value->axes.rank() != int(letters->size()))
      call.refuse(fmt::format("has {} axes where its equation has '{}'", value->axes.rank(), *letters));
  if (a.kind == Value::Kind::parameter)
    call.refuse(fmt::format("multiplies a parameter from the left ('{}'), which is not supported", e.text));
  std::stable_partition(g.batch.begin(), g.batch.end(),
                        [&](char letter) { return size_of(e.left, a.axes, letter) == rows_symbol; });
  Sizes sizes;
  for (const char letter : g.batch + g.left) sizes.push_back(size_of(e.left, a.axes, letter));
  for (const char letter : g.right) sizes.push_back(size_of(e.right, b.axes, letter));
  for (const char letter : g.batch + g.summed)
    if (size_of(e.left, a.axes, letter) != size_of(e.right, b.axes, letter))
      call.refuse(
          fmt::format("multiplies {} by {}, whose extents do not fit '{}'", a.axes.text(), b.axes.text(), e.text));
  const Value right = arranged(call, b, e.right, g.batch, g.summed, g.right);
  Value out;
  if (b.kind == Value::Kind::parameter && g.batch.empty()) {
    out = times_parameter(c, call, arranged(call, a, e.left, g.left, "", g.summed), right).at(0);
  } else {
    if (b.kind == Value::Kind::parameter || g.batch.empty())
      call.refuse(fmt::format("has the equation '{}', which is no product of matrices for each row", e.text));
    out = matrix_product(c, call, arranged(call, a, e.left, g.batch, g.left, g.summed), right);
  }
  if (!out.axes.view(sizes)) call.refuse("divides axes in another way than its result has them");
  std::vector<int> order;
  const std::string letters = g.batch + g.left + g.right;
  for (const char letter : e.result) order.push_back(int(letters.find(letter)));
  out.axes.permute(order);
  return {out};
}

}  // namespace

void add_einsum(Operations& all) { all["einsum"] = einsum; }

}  // namespace millrace::pt2
