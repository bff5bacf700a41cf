// LSTM, GRU and RNN, whose first state is zero.
#include <fmt/core.h>

#include <algorithm>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

using Kind = RecurrentSpec::Kind;

bool is_read(const Context& c, const std::string& name) {
  if (std::ranges::find(c.program.outputs, name) != c.program.outputs.end()) return true;
  return std::ranges::any_of(c.nodes, [&](const ExportedNode& node) {
    return std::ranges::any_of(node.arguments, [&](const auto& argument) {
      if (const auto* one = std::get_if<TensorName>(&argument.second)) return one->name == name;
      const auto* list = std::get_if<std::vector<TensorName>>(&argument.second);
      return list && std::ranges::find(*list, name, &TensorName::name) != list->end();
    });
  });
}

void require_zero_state(Context& c, const Call& call, const Values& states) {
  for (const Value& state : states) {
    const auto constant = c.as_constant(state);
    if (!constant || std::ranges::any_of(*constant->data, [](double v) { return v != 0; }))
      call.refuse("begins with a state that is given to it. only a state of zeros is supported: pass none");
  }
}

// Of the weights of all layers and directions: those of the first one have these sizes.
GraphBuilder::RecurrentOptions options_of(Context& c, const Call& call, Kind kind, const Values& weights,
                                          std::int64_t features) {
  GraphBuilder::RecurrentOptions o;
  o.kind = kind;
  o.layers = call.integer("num_layers", 1);
  o.bias = call.flag("has_biases", true);
  o.bidirectional = call.flag("bidirectional", false);
  o.dropout = call.flag("train", false) ? float(call.real("dropout", 0)) : 0;
  o.seed = c.spec.seed;
  if (o.dropout >= 1) call.refuse("drops everything");
  const std::int64_t gates = RecurrentSpec{{}, 1, kind}.gates(), directions = o.bidirectional ? 2 : 1;
  const std::int64_t each = o.bias ? 4 : 2;
  for (const Value& w : weights)
    if (w.kind != Value::Kind::parameter || w.picked || !w.axes.selected.empty())
      call.refuse("has weights that are no parameters of a module. make them nn.Parameters");
  const auto count = std::int64_t(weights.size());
  if (count < each || count % (directions * each) != 0 || o.layers != count / (directions * each) ||
      weights[1].axes.rank() != 2)
    call.refuse(fmt::format("has {} weights, which is not supported. remove proj_size", weights.size()));
  o.units = weights[1].axes.size(1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::size_t number = i % std::size_t(each);
    const std::int64_t inputs = i < std::size_t(each * directions) ? features : o.units * directions;
    const Sizes expected = number > 1 ? Sizes{gates * o.units} : Sizes{gates * o.units, number == 0 ? inputs : o.units};
    if (weights[i].axes.sizes() != expected)
      call.refuse(
          fmt::format("has a weight {} where {} inputs and {} units need another one. does the data have the "
                      "shape of the network?",
                      weights[i].axes.text(), inputs, o.units));
  }
  return o;
}

// h_n: (layers and directions, N, units), the results of the last steps; c_n: the states of the cells behind them.
Value last_states(Context& c, const Call& call, const std::vector<int>& each, std::int64_t steps, bool bidirectional,
                  bool cell) {
  int out = -1;
  for (std::size_t i = 0; i < each.size(); ++i) {
    const bool back = bidirectional && i % 2 == 1;
    const std::string name = c.layer_name(call);
    const int last = c.builder.slice(name, each[i], 1, cell ? steps : back ? 0 : steps - 1, 1);
    out = i == 0 ? last : c.builder.concat(name + ".joined", out, last, 1);
  }
  const Shape& shape = c.builder.shape(out);
  Axes axes = Axes::contiguous({rows_symbol, shape[1], shape[2]});
  axes.permute({1, 0, 2});
  return graph_value(out, axes);
}

Values recurrent(Context& c, const Call& call, Kind kind, const Values& states) {
  require_zero_state(c, call, states);
  Value x = call.computed("input");
  if (x.axes.rank() != 3) call.refuse(fmt::format("needs an input (N, steps, features), but it is {}", x.axes.text()));
  const bool batch_first = call.flag("batch_first", false);
  if (!batch_first) x.axes.permute({1, 0, 2});
  if (!x.axes.begins_with_rows())
    call.refuse("has its rows on another axis than the first. create it with batch_first=True");
  x = c.contiguous(call, x);
  const std::int64_t steps = x.axes.size(1), features = x.axes.size(2);
  const Values weights = call.values("params");
  const std::vector<std::string>& names = call.node().results;
  auto options = options_of(c, call, kind, weights, features);
  const auto reads = [&](std::size_t result) { return names.size() > result && is_read(c, names[result]); };
  options.sequence = reads(0);
  options.cell_state = kind == Kind::lstm && reads(2);
  std::vector<int> each;
  const int src = c.shaped(call, x.graph, {c.rows, steps, features});
  const int out = c.builder.recurrent(c.layer_name(call, weights[0].tensor), src, options, &each);
  std::vector<Context::Source> sources;
  for (const Value& w : weights) sources.push_back(Context::as_stored(w));
  c.attach(call, sources);
  Axes axes = Axes::contiguous({rows_symbol, steps, c.builder.shape(out)[2]});
  if (!batch_first) axes.permute({1, 0, 2});
  Values results(2);
  if (reads(0)) results[0] = graph_value(out, axes);
  if (reads(1)) results[1] = last_states(c, call, each, steps, options.bidirectional, false);
  if (kind != Kind::lstm) return results;
  results.emplace_back();
  if (reads(2)) results[2] = last_states(c, call, each, steps, options.bidirectional, true);
  return results;
}

Values lstm(Context& c, const Call& call) { return recurrent(c, call, Kind::lstm, call.values("hx")); }
template <Kind kind>
Values with_one_state(Context& c, const Call& call) {
  return recurrent(c, call, kind, {call.value("hx")});
}

}  // namespace

void add_recurrent(Operations& all) {
  all["lstm"] = lstm;
  all["gru"] = with_one_state<Kind::gru>;
  all["rnn_tanh"] = with_one_state<Kind::rnn_tanh>;
  all["rnn_relu"] = with_one_state<Kind::rnn_relu>;
}

}  // namespace millrace::pt2
