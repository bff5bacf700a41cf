// Rows of random numbers that PyTorch draws itself, as stochastic depth is often written: floor(rand + keep), or
// rand < keep, for each row.
#include <fmt/core.h>

#include <cmath>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

Values uniform(Context& c, const Call& call) {
  Value out;
  out.draw = c.draws++;
  out.kind = Value::Kind::uniform;
  out.axes = Axes::contiguous(call.integers("size"));
  out.keep = 0;
  if (out.axes.count(out.axes.stored) != rows_symbol || !out.axes.begins_with_rows())
    call.refuse("draws random numbers that are not one for each row (stochastic depth). that is not supported");
  return {out};
}

// Keeps a row with this probability.
Values mask_of_rows(const Call& call, double keep) {
  Value out = call.value("self");
  if (out.kind != Value::Kind::uniform)
    call.refuse("is supported for values that do not depend on the samples, and for stochastic depth only");
  if (!(keep > 0 && keep <= 1)) call.refuse(fmt::format("keeps rows with the probability {:g}", keep));
  out.kind = Value::Kind::row_mask;
  out.keep = keep;
  out.memory = -1;
  return {out};
}

// floor(u + keep), with u in [0, 1), is 1 with the probability `keep`, otherwise 0.
Values rounded_down(Context&, const Call& call) { return mask_of_rows(call, call.value("self").keep); }

double bound_of(const Call& call) {
  if (!call.is_number("other")) call.refuse("compares values that depend on the samples, which is not supported");
  return call.real("other", 0) - call.value("self").keep;
}
Values below(Context&, const Call& call) { return mask_of_rows(call, bound_of(call)); }
Values above(Context&, const Call& call) { return mask_of_rows(call, 1 - bound_of(call)); }

bool reads(const ExportedNode& node, const std::string& name) {
  for (const auto& [argument, given] : node.arguments) {
    if (const auto* one = std::get_if<TensorName>(&given); one && one->name == name) return true;
    if (const auto* list = std::get_if<std::vector<TensorName>>(&given))
      for (const TensorName& part : *list)
        if (part.name == name) return true;
  }
  return false;
}

}  // namespace

bool only_masks_rows(const Context& c, const Call& call) {
  if (call.node().results.size() != 1 || call.node().target.starts_with("aten.div_")) return false;
  const std::string& name = call.node().results[0];
  for (const std::string& output : c.program.outputs)
    if (output == name) return false;
  int readers = 0;
  bool masks = false;
  for (const ExportedNode& node : c.nodes) {
    if (!reads(node, name)) continue;
    ++readers;
    if (node.target != "aten.mul.Tensor") continue;
    for (const auto& [argument, given] : node.arguments) {
      const auto* one = std::get_if<TensorName>(&given);
      const Value* other = one && one->name != name ? c.find(one->name) : nullptr;
      masks = masks || (other && other->kind == Value::Kind::row_mask);
    }
  }
  return readers == 1 && masks;
}

Value with_dropped_rows(Context& c, const Call& call, Value x, const Value& mask) {
  const double factor = mask.factor * x.factor * mask.keep;
  x.factor = 1;
  if (std::abs(factor - 1) > 1e-6) x = affine(c, call, x, factor, 0);
  if (mask.keep >= 1) return x;
  if (!c.used_draws.insert(mask.draw).second)
    call.refuse("drops the rows that another product drops, which is not supported. draw new numbers for it");
  const int out = c.builder.dropout(c.layer_name(call), x.graph, float(1 - mask.keep), c.spec.seed, true);
  return graph_value(out, x.axes);
}

void add_random(Operations& all) {
  all["rand"] = uniform;
  all["floor"] = rounded_down;
  all["lt"] = all["le"] = below;
  all["gt"] = all["ge"] = above;
}

}  // namespace millrace::pt2
