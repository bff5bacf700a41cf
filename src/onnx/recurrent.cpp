// LSTM, GRU and RNN. ONNX has the time steps first, and the gates in another order: i, o, f, g and z, r, n.
#include "onnx/operations.hpp"

namespace millrace {

void add_node(Assembler& a, const Node& node, const RecurrentSpec& s) {
  const bool lstm = s.kind == RecurrentSpec::Kind::lstm;
  const OnnxShape order = lstm ? OnnxShape{0, 3, 1, 2} : s.plain() ? OnnxShape{0} : OnnxShape{1, 0, 2};
  const std::string src = a.transpose(node.name + ".steps", a.get(node.src[0], Order::last), {1, 0, 2});
  std::vector<std::string> inputs{src};
  for (const int weight : {0, 1})
    inputs.push_back(a.weight(node.weight[std::size_t(weight)],
                              {.shape = {1, s.width(), weight == 0 ? s.features() : s.units}, .parts = order}));
  if (s.bias) {
    const auto bias = [&](std::size_t weight) {
      return a.weight(node.weight[weight], {.shape = {1, s.width()}, .parts = order});
    };
    inputs.push_back(a.add("Concat", node.name + ".biases", {bias(2), bias(3)}, {{"axis", std::int64_t(1)}}));
  }
  std::vector<OnnxAttribute> attributes{{"direction", std::string(s.reverse ? "reverse" : "forward")},
                                        {"hidden_size", s.units}};
  if (s.kind == RecurrentSpec::Kind::gru) attributes.push_back({"linear_before_reset", std::int64_t(1)});
  if (s.kind == RecurrentSpec::Kind::rnn_relu) attributes.push_back({"activations", std::vector<std::string>{"Relu"}});
  const std::string type = lstm ? "LSTM" : s.plain() ? "RNN" : "GRU";
  std::vector<std::string> results{node.name + (lstm ? ".lstm" : s.plain() ? ".rnn" : ".gru")};
  if (s.cell_state) results.insert(results.end(), {"", node.name + ".cell"});
  a.add(type, inputs, results, attributes);
  if (s.cell_state) {  // (S, 1, N, units) and (1, N, units)
    const std::string cell = a.reshape(node.name + ".cell_step", results[2], {1, 1, -1, s.units});
    results[0] = a.add("Concat", node.name + ".steps_and_cell", {results[0], cell}, {{"axis", std::int64_t(0)}});
  }
  const std::string rows = a.transpose(node.name + ".rows", results[0], {2, 0, 1, 3});
  a.set(node.dst, a.reshape(node.name, rows, {0, s.positions(), s.units}), Order::last);
}

}  // namespace millrace
