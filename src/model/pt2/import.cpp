// Goes through the nodes of an exported network and adds operations to a graph.
#include "millrace/model/pt2/import.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "millrace/base/error.hpp"
#include "model/pt2/context.hpp"

namespace millrace {
namespace pt2 {

std::string kind_of(const std::string& target, bool* in_place) {
  if (target.starts_with('(')) return target;  // of simplified_nodes()
  if (!target.starts_with("aten.")) return "";
  std::string kind = target.substr(5, target.find('.', 5) - 5);
  const bool ends = kind.size() > 1 && kind.ends_with('_') && !kind.ends_with("__");
  if (in_place) *in_place = ends;
  if (ends) kind.pop_back();
  return kind;
}

namespace {

const Operations& operations() {
  static const Operations all = [] {
    Operations out;
    add_layers(out);
    add_norms(out);
    add_pools(out);
    add_pointwise(out);
    add_shapes(out);
    add_attention(out);
    add_products(out);
    add_recurrent(out);
    add_sums(out);
    add_joins(out);
    add_random(out);
    add_einsum(out);
    return out;
  }();
  return all;
}

using Arithmetic = std::int64_t (*)(std::int64_t, std::int64_t);

// Of numbers such as extents.
const std::map<std::string, Arithmetic>& arithmetic() {
  using I = std::int64_t;
  static const std::map<std::string, Arithmetic> all{
      {"_operator.mul",
       [](I a, I b) {
         I out = 0;
         return __builtin_mul_overflow(a, b, &out) ? 0 : out;
       }},
      {"_operator.add", [](I a, I b) { return I(std::uint64_t(a) + std::uint64_t(b)); }},
      {"_operator.sub", [](I a, I b) { return I(std::uint64_t(a) - std::uint64_t(b)); }},
      {"_operator.floordiv", [](I a, I b) { return b > 0 && a >= 0 ? a / b : 0; }},
      {"_operator.mod", [](I a, I b) { return b > 0 && a >= 0 ? a % b : 0; }},
      {"_operator.eq", [](I a, I b) { return I(a == b); }},
      {"_operator.ne", [](I a, I b) { return I(a != b); }},
      {"_operator.lt", [](I a, I b) { return I(a < b); }},
      {"_operator.le", [](I a, I b) { return I(a <= b); }},
      {"_operator.gt", [](I a, I b) { return I(a > b); }},
      {"_operator.ge", [](I a, I b) { return I(a >= b); }}};
  return all;
}

// Checks that PyTorch makes while it runs.
bool is_check(const std::string& target) {
  for (const char* begin : {"aten._assert", "aten.sym_constrain_range", "aten._check"})
    if (target.starts_with(begin)) return true;
  return false;
}

void compute_number(Context& c, const Call& call) {
  const ExportedNode& node = call.node();
  if (node.results.size() != 1) call.refuse("has no single result");
  if (node.target == "aten.sym_size.int") {
    const Axes axes = call.value("self").axes;
    return c.define(node.results[0], axes.size(call.axis("dim", 0, axes.rank())));
  }
  if (node.arguments.size() != 2) call.refuse("is not arithmetic with two numbers");
  const auto number = [&](std::size_t i) { return call.integer(node.arguments[i].first.c_str(), 0); };
  c.define(node.results[0], arithmetic().at(node.target)(number(0), number(1)));
}

void run_node(Context& c, const ExportedNode& node) {
  const Call call(c, node);
  if (is_check(node.target)) return;
  if (node.target == "aten.sym_size.int" || arithmetic().contains(node.target)) return compute_number(c, call);
  bool in_place = false;
  const std::string kind = kind_of(node.target, &in_place);
  Values results;
  try {
    if (const auto folded = fold(c, call, kind, in_place)) {
      if (node.results.size() != 1) call.refuse("has no single result");
      return c.define(node.results[0], *folded);
    }
    if (const auto folded = fold_numbers(c, call, kind)) return c.define(node.results.at(0), *folded);
    const auto operation = operations().find(kind);
    if (operation == operations().end()) call.refuse("is supported for values that do not depend on the samples only");
    results = operation->second(c, call);
  } catch (const Error& e) {
    if (std::string(e.what()).starts_with("model")) throw;
    call.refuse(e.what());
  }
  if (results.size() != node.results.size())
    call.refuse(fmt::format("has {} results here, and {} in the file", results.size(), node.results.size()));
  const auto* self = in_place ? std::get_if<TensorName>(&node.arguments.at(0).second) : nullptr;
  if (self) {
    c.overwrite(self->name, node.results[0], results[0]);
    return;
  }
  for (std::size_t i = 0; i < results.size(); ++i) c.define(node.results[i], results[i]);
}

bool matches(const UserInput& user, const Sizes& sizes) {
  if (user.sizes.size() != sizes.size() + 1) return false;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis)
    if (!user.dynamic[axis + 1] && user.sizes[axis + 1] != sizes[axis]) return false;
  return true;
}

std::string text_of(const UserInput& user) {
  std::string out = "N";
  for (std::size_t axis = 1; axis < user.sizes.size(); ++axis)
    out += user.dynamic[axis] ? ", any" : fmt::format(", {}", user.sizes[axis]);
  return "(" + out + ")";
}

// The batch with the axes that the network expects. Samples have their channels last.
Axes axes_of_input(const Context& c, const UserInput& user, const Shape& batch) {
  Sizes stored;
  for (int axis = 1; axis < batch.rank; ++axis) stored.push_back(batch[axis]);
  const auto of_rows = [](Sizes sizes) {
    sizes.insert(sizes.begin(), rows_symbol);
    return Axes::contiguous(sizes);
  };
  Sizes first = stored;  // the channels first
  std::rotate(first.begin(), first.end() - 1, first.end());
  if (matches(user, first)) return Axes::image(first[0], Sizes(first.begin() + 1, first.end()));
  if (matches(user, stored)) return of_rows(stored);
  if (stored.size() > 1 && stored.back() == 1) {
    const Sizes without(stored.begin(), stored.end() - 1);
    if (matches(user, without)) return of_rows(without);
    if (matches(user, {batch.row_count()})) return of_rows({batch.row_count()});
  }
  fail(Exit::config,
       "model.file: {} takes samples of {}{}, but the data has {} (channels last). export the network with such "
       "samples, "
       "or change the data with data.sample, data.crop or data.layout",
       c.program.path.string(), text_of(user),
       c.program.user_inputs.size() > 1 ? " as its input '" + user.name + "'" : "", batch.str());
}

std::string names_of(const auto& inputs) {
  std::string out;
  for (const auto& input : inputs) out += (out.empty() ? "" : ", ") + input.name;
  return out;
}

// The data sets of data.x for the inputs of the network: by their names if these are those of the inputs, otherwise in
// their order.
std::vector<const NamedInput*> data_sets_of(const Context& c) {
  const auto& users = c.program.user_inputs;
  const auto& sets = c.spec.inputs;
  std::vector<const NamedInput*> by_name, in_order;
  for (const NamedInput& set : sets) in_order.push_back(&set);
  for (const UserInput& user : users) {
    const auto found = std::ranges::find(sets, user.name, &NamedInput::name);
    if (found != sets.end()) by_name.push_back(&*found);
  }
  if (sets.size() == users.size() && by_name.empty()) return in_order;
  if (sets.size() == users.size() && by_name.size() == users.size()) return by_name;
  fail(Exit::config,
       "model.file: {} has the inputs {}, but data.x names {}. name a data set for each: with the same names, or in "
       "that order and with none of these names",
       c.program.path.string(), names_of(users), sets.empty() ? "one input" : names_of(sets));
}

Value value_of_input(Context& c, const UserInput& user, int value) {
  if (user.dynamic.empty() || !user.dynamic[0])
    fail(Exit::config, "model.file: {} was exported for one number of rows. export it with {}", c.program.path.string(),
         export_for_any_rows(c.program));
  Value v;
  v.graph = value;
  v.kind = c.spec.tokens ? Value::Kind::tokens : Value::Kind::graph;
  v.axes = axes_of_input(c, user, c.builder.shape(value));
  return v;
}

// input: -1 if there are several.
void define_inputs(Context& c, int input) {
  if (c.program.outputs.size() != 1 || c.program.outputs[0].empty())
    fail(Exit::config,
         "model.file: {} has {} results. one is supported: wrap the network in a module that returns what the loss "
         "reads",
         c.program.path.string(), c.program.outputs.size());
  if (c.program.user_inputs.empty())
    fail(Exit::config, "model.file: {} has no input. export it with one", c.program.path.string());
  std::vector<int> values{input};
  if (input < 0 || c.program.user_inputs.size() != 1) {
    values.clear();
    for (const NamedInput* set : data_sets_of(c)) values.push_back(c.add_input(*set));
  }
  if (!c.spec.tokens) c.inputs = values;
  std::size_t user = 0;
  for (const GraphInput& one : c.program.inputs) {
    Value v;
    if (one.kind == GraphInput::Kind::user) {
      v = value_of_input(c, c.program.user_inputs.at(user), values.at(user));
      ++user;
    } else {
      v.axes = Axes::contiguous(c.program.tensors[std::size_t(one.tensor)].sizes);
      if (one.kind == GraphInput::Kind::parameter) v.kind = Value::Kind::parameter;
    }
    v.tensor = one.tensor;
    c.define(one.name, v);
  }
}

// In the shape that the loss reads, if its extents are those.
int result_of(Context& c) {
  const std::string& name = c.program.outputs[0];
  const auto node = std::ranges::find_if(
      c.program.nodes, [&](const ExportedNode& n) { return std::ranges::find(n.results, name) != n.results.end(); });
  if (node == c.program.nodes.end())
    fail(Exit::config, "model.file: {} returns its input. it has no network", c.program.path.string());
  const Call call(c, *node);
  Value v = c.plain(call, c.value(call, name));
  const Shape& y = c.builder.shape(Graph::y);
  std::vector<Atoms> axes = v.axes.logical;
  // PyTorch's losses read a class for each position from (N, classes, positions...).
  if (!c.spec.pointwise_loss && !c.spec.tokens && y.rank > 1 && axes.size() > 2)
    std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
  Atoms order;
  for (const Atoms& axis : axes) order.insert(order.end(), axis.begin(), axis.end());
  v = c.ordered(call, v, order);
  Shape needed{c.rows, c.spec.outputs};
  if (!c.spec.pointwise_loss && y.rank < Shape::max_rank) {
    needed = y;
    needed.dims[std::size_t(needed.rank++)] = c.spec.outputs;
  }
  if (needed.count() == c.builder.shape(v.graph).count()) return c.shaped(call, v.graph, needed);
  return v.graph;
}

}  // namespace

bool understands(const std::string& target) {
  return is_check(target) || target == "aten.sym_size.int" || arithmetic().contains(target) ||
         operations().contains(kind_of(target)) || is_constant_operation(kind_of(target)) ||
         is_number_operation(kind_of(target));
}

namespace {

void require_understood_nodes(const ExportedProgram& program, const std::vector<ExportedNode>& nodes) {
  std::map<std::string, std::pair<int, const ExportedNode*>> unknown;  // nodes, and the first one
  for (const ExportedNode& node : nodes)
    if (!understands(node.target)) {
      auto& [count, first] = unknown[node.target];
      if (count++ == 0) first = &node;
    }
  if (unknown.empty()) return;
  std::string text;
  for (const auto& [target, found] : unknown) {
    const auto& [count, first] = found;
    text += fmt::format("{}{} ({} node{} '{}'{}{})", text.empty() ? "" : "; ", target, count,
                        count == 1 ? "," : "s, the first is", first->name,
                        first->module.empty() ? "" : " in " + first->module,
                        first->source.empty() ? "" : ", " + first->source);
  }
  fail(Exit::config, "model.file: {} has operations that are not supported yet: {}. replace them by others",
       program.path.string(), text);
}

}  // namespace

void require_understood(const ExportedProgram& program) {
  require_understood_nodes(program, simplified_nodes(program));
}

}  // namespace pt2

int build_pt2(GraphBuilder& builder, int input, const ModelSpec& spec) {
  if (!spec.exported) fail(Exit::config, "model.name = pt2 needs model.file, the path of an exported network");
  pt2::Context context(builder, *spec.exported, spec);
  pt2::require_understood_nodes(*spec.exported, context.nodes);
  pt2::define_inputs(context, input);
  for (const pt2::ExportedNode& node : context.nodes) pt2::run_node(context, node);
  return pt2::result_of(context);
}

}  // namespace millrace
