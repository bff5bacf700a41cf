// Finds nodes that compute a known function together, and writes one node in the place of the last of them. The others
// stay if something else reads their results.
#include <algorithm>
#include <map>
#include <set>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

bool has_kind(const ExportedNode& node, const char* kind) {
  return node.target.starts_with("aten." + std::string(kind) + ".");
}

bool is_in_place(const ExportedNode& node) {
  const std::size_t end = node.target.find('.', 5);
  return node.target.starts_with("aten.") && end != std::string::npos && node.target[end - 1] == '_' &&
         node.target[end - 2] != '_';
}

std::string tensor_in(const ExportedNode& node, const char* argument) {
  const Argument* found = node.find(argument);
  const auto* tensor = found ? std::get_if<TensorName>(found) : nullptr;
  return tensor ? tensor->name : "";
}

std::optional<double> number_in(const ExportedNode& node, const char* argument) {
  const Argument* found = node.find(argument);
  if (const auto* real = std::get_if<double>(found)) return *real;
  if (const auto* integer = std::get_if<std::int64_t>(found)) return double(*integer);
  return std::nullopt;
}
bool is_left_out(const ExportedNode& node, const char* argument) {
  const Argument* found = node.find(argument);
  return !found || std::holds_alternative<std::monostate>(*found);
}
// nullopt: it is no integer that is known here.
std::optional<std::int64_t> integer_in(const ExportedNode& node, const char* argument, std::int64_t otherwise) {
  if (is_left_out(node, argument)) return otherwise;
  const auto* integer = std::get_if<std::int64_t>(node.find(argument));
  return integer ? std::optional(*integer) : std::nullopt;
}
bool is_plain_sum(const ExportedNode& node) { return is_left_out(node, "alpha") || number_in(node, "alpha") == 1.0; }
bool is_near(std::optional<double> x, double y) { return x && std::abs(*x - y) <= 1e-6 * std::abs(y); }

class Patterns {
 public:
  explicit Patterns(const ExportedProgram& program)
      : program_(program), nodes_(program.nodes), constants_(constant_names(program)) {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      for (const std::string& name : nodes_[i].results) producer_[name] = i;
    for (const GraphInput& input : program.inputs)
      if (input.kind == GraphInput::Kind::parameter) parameters_[input.name] = input.tensor;
  }

  std::vector<ExportedNode> simplified() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      read_.clear();
      std::optional<ExportedNode> found;
      if (has_kind(nodes_[i], "mul")) found = rms_norm(nodes_[i]);
      if (has_kind(nodes_[i], "mul") && !found) {
        read_.clear();
        found = gelu(nodes_[i]);
      }
      if (has_kind(nodes_[i], "add")) found = rotary(nodes_[i]);
      if (has_kind(nodes_[i], "scaled_dot_product_attention")) found = grouped_attention(nodes_[i]);
      if (!found || writes_between(i)) continue;
      nodes_[i].target = found->target;
      nodes_[i].arguments = found->arguments;
    }
    remove_unread();
    return std::move(nodes_);
  }

 private:
  // The node of this kind that computes a tensor, through casts to the type of the network; null: another one does.
  const ExportedNode* node(const std::string& tensor, const char* kind) {
    const auto found = producer_.find(behind_casts(tensor));
    if (found == producer_.end() || !has_kind(nodes_[found->second], kind)) return nullptr;
    read_.insert(found->second);
    return &nodes_[found->second];
  }
  std::string behind_casts(std::string tensor) {
    for (;;) {
      const auto found = producer_.find(tensor);
      if (found == producer_.end()) return tensor;
      const ExportedNode& cast = nodes_[found->second];
      if (!has_kind(cast, "to") && !has_kind(cast, "_to_copy")) return tensor;
      const Argument* type = cast.find("dtype");
      const auto* number = type ? std::get_if<ScalarType>(type) : nullptr;
      if (!number || (*number != ScalarType::f32 && *number != ScalarType::f64)) return tensor;
      read_.insert(found->second);
      tensor = tensor_in(cast, "self");
    }
  }
  bool are_same(const std::string& a, const std::string& b) { return !a.empty() && behind_casts(a) == behind_casts(b); }

  // Calls body with the factors, or the terms, in both orders, until it finds something.
  template <class Body>
  auto in_both_orders(const ExportedNode& of, const Body& body) {
    const std::string a = tensor_in(of, "self"), b = tensor_in(of, "other");
    using Found = decltype(body(a, b));
    if (a.empty() || b.empty()) return Found{};
    if (Found found = body(a, b)) return found;
    return body(b, a);
  }
  // The tensor that a node adds this number to, or multiplies by it; "": it does not.
  static std::string beside(const ExportedNode* of, double number) {
    return of && is_near(number_in(*of, "other"), number) && is_plain_sum(*of) ? tensor_in(*of, "self") : "";
  }

  // weight * (x * rsqrt(mean(x^2) + eps)) over the last axis.
  std::optional<ExportedNode> rms_norm(const ExportedNode& last) {
    return in_both_orders(last, [&](const std::string& weight, const std::string& scaled) {
      std::optional<ExportedNode> out;
      const auto parameter = parameters_.find(weight);
      if (parameter == parameters_.end()) return out;
      const std::vector<std::int64_t>& sizes = program_.tensors[std::size_t(parameter->second)].sizes;
      const ExportedNode* product = node(scaled, "mul");
      if (!product || sizes.size() != 1) return out;
      return in_both_orders(*product, [&](const std::string& x, const std::string& factor) {
        std::optional<ExportedNode> norm;
        const ExportedNode* root = node(factor, "rsqrt");
        const ExportedNode* sum = root ? node(tensor_in(*root, "self"), "add") : nullptr;
        const std::optional<double> eps = sum ? number_in(*sum, "other") : std::nullopt;
        const ExportedNode* mean = eps ? node(tensor_in(*sum, "self"), "mean") : nullptr;
        const ExportedNode* square = mean ? node(tensor_in(*mean, "self"), "pow") : nullptr;
        if (!square || number_in(*square, "exponent") != 2.0 || !is_over_last_axis(*mean) || !is_plain_sum(*sum) ||
            !are_same(tensor_in(*square, "self"), x))
          return norm;
        norm.emplace();
        norm->target = "aten.rms_norm.default";
        norm->arguments = {{"input", TensorName{behind_casts(x)}},
                           {"normalized_shape", std::vector<Integer>{sizes[0]}},
                           {"weight", TensorName{weight}},
                           {"eps", *eps}};
        return norm;
      });
    });
  }
  static bool is_over_last_axis(const ExportedNode& mean) {
    const Argument* dim = mean.find("dim");
    const Argument* keep = mean.find("keepdim");
    const auto* axes = dim ? std::get_if<std::vector<Integer>>(dim) : nullptr;
    const auto* kept = keep ? std::get_if<bool>(keep) : nullptr;
    if (!axes || axes->size() != 1 || !kept || !*kept) return false;
    const auto* axis = std::get_if<std::int64_t>(&axes->front());
    return axis && *axis == -1;
  }

  // 0.5 x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  std::optional<ExportedNode> gelu(const ExportedNode& last) {
    return in_both_orders(last, [&](const std::string& half, const std::string& other) {
      std::optional<ExportedNode> out;
      const std::string x = beside(node(half, "mul"), 0.5);
      const ExportedNode* tanh = x.empty() ? nullptr : node(beside(node(other, "add"), 1), "tanh");
      if (!tanh) return out;
      const ExportedNode* sum = node(beside(node(tensor_in(*tanh, "self"), "mul"), 0.7978845608), "add");
      if (!sum || !is_plain_sum(*sum)) return out;
      return in_both_orders(*sum, [&](const std::string& first, const std::string& second) {
        std::optional<ExportedNode> found;
        const ExportedNode* cube = node(beside(node(second, "mul"), 0.044715), "pow");
        if (!cube || number_in(*cube, "exponent") != 3.0 || !are_same(first, x) ||
            !are_same(tensor_in(*cube, "self"), x))
          return found;
        found.emplace();
        found->target = "aten.gelu.default";
        found->arguments = {{"self", TensorName{behind_casts(x)}}, {"approximate", std::string("tanh")}};
        return found;
      });
    });
  }

  // x * cosine + cat(-x[half:], x[:half]) * sine
  std::optional<ExportedNode> rotary(const ExportedNode& last) {
    if (!is_plain_sum(last)) return std::nullopt;
    return in_both_orders(last, [&](const std::string& straight, const std::string& turned) {
      std::optional<ExportedNode> out;
      const ExportedNode *a = node(straight, "mul"), *b = node(turned, "mul");
      if (!a || !b) return out;
      return in_both_orders(*b, [&](const std::string& rotated, const std::string& sine) {
        std::optional<ExportedNode> found;
        const ExportedNode* cat = node(rotated, "cat");
        const Argument* list = cat ? cat->find("tensors") : nullptr;
        const auto* parts = list ? std::get_if<std::vector<TensorName>>(list) : nullptr;
        if (!parts || parts->size() != 2) return found;
        const ExportedNode* negative = node((*parts)[0].name, "neg");
        const ExportedNode* end = negative ? node(tensor_in(*negative, "self"), "slice") : nullptr;
        const ExportedNode* begin = end ? node((*parts)[1].name, "slice") : nullptr;
        if (!begin || !are_halves(*begin, *end, *cat)) return found;
        const std::string x = tensor_in(*begin, "self");
        return in_both_orders(*a, [&](const std::string& self, const std::string& cosine) {
          std::optional<ExportedNode> rotation;
          if (!are_same(self, x) || !are_same(tensor_in(*end, "self"), x) || !constants_.contains(cosine) ||
              !constants_.contains(sine))
            return rotation;
          rotation.emplace();
          rotation->target = "(rotary)";
          rotation->arguments = {{"self", TensorName{x}},
                                 {"cosine", TensorName{cosine}},
                                 {"sine", TensorName{sine}},
                                 {"half", *integer_in(*begin, "end", 0)},
                                 {"dim", *integer_in(*begin, "dim", 0)},
                                 {"joined", *integer_in(*cat, "dim", 0)}};
          return rotation;
        });
      });
    });
  }
  // The axis of the parts may be that along which they are joined: one of the two may count from the end.
  static bool are_halves(const ExportedNode& begin, const ExportedNode& end, const ExportedNode& cat) {
    constexpr std::int64_t none = INT64_MAX;
    const auto dim = integer_in(begin, "dim", 0), half = integer_in(begin, "end", none), to = integer_in(cat, "dim", 0);
    return dim && to && (dim == to || (*dim < 0) != (*to < 0)) && half && *half > 0 &&
           dim == integer_in(end, "dim", 0) && half == integer_in(end, "start", 0) &&
           integer_in(begin, "start", 0) == 0 && integer_in(end, "end", none) == none &&
           integer_in(begin, "step", 1) == 1 && integer_in(end, "step", 1) == 1;
  }

  // Keys and values that are repeated for several heads: reshape(expand(unsqueeze(x, 2))).
  std::optional<ExportedNode> grouped_attention(const ExportedNode& attention) {
    const std::string key = before_repetition(tensor_in(attention, "key")),
                      value = before_repetition(tensor_in(attention, "value"));
    if (key.empty() || value.empty()) return std::nullopt;
    ExportedNode out = attention;
    std::erase_if(out.arguments, [](const auto& one) { return one.first == "enable_gqa"; });
    for (auto& [name, argument] : out.arguments) {
      if (name == "key") argument = TensorName{key};
      if (name == "value") argument = TensorName{value};
    }
    out.arguments.emplace_back("enable_gqa", true);
    return out;
  }
  std::string before_repetition(const std::string& tensor) {
    const ExportedNode* reshape = node(tensor, "reshape");
    const ExportedNode* expand = reshape ? node(tensor_in(*reshape, "self"), "expand") : nullptr;
    const ExportedNode* unsqueeze = expand ? node(tensor_in(*expand, "self"), "unsqueeze") : nullptr;
    if (!unsqueeze || integer_in(*unsqueeze, "dim", 0) != 2) return "";
    const Argument *to = expand->find("size"), *shape = reshape->find("shape");
    const auto* from = to ? std::get_if<std::vector<Integer>>(to) : nullptr;
    const auto* sizes = shape ? std::get_if<std::vector<Integer>>(shape) : nullptr;
    if (!from || !sizes || from->size() != 5 || sizes->size() != 4) return "";
    const auto number = [](const Integer& of) {
      const auto* value = std::get_if<std::int64_t>(&of);
      return value ? *value : 0;
    };
    const std::int64_t heads = number((*from)[1]), times = number((*from)[2]);
    if (heads < 1 || times < 1 || number((*sizes)[1]) != heads * times) return "";
    return tensor_in(*unsqueeze, "self");
  }

  // Whether a node between the first one that was read and the last one writes over a tensor, perhaps one of theirs.
  bool writes_between(std::size_t last) const {
    const std::size_t first = read_.empty() ? last : *read_.begin();
    for (std::size_t i = first; i <= last; ++i)
      if (is_in_place(nodes_[i])) return true;
    return false;
  }

  // Nodes whose results nothing reads, such as those that a pattern has replaced.
  void remove_unread() {
    std::map<std::string, int> readers;
    const auto count = [&](const ExportedNode& node, int change) {
      for (const auto& [name, value] : node.arguments) {
        if (const auto* tensor = std::get_if<TensorName>(&value)) readers[tensor->name] += change;
        if (const auto* number = std::get_if<SymbolName>(&value)) readers[number->name] += change;
        if (const auto* list = std::get_if<std::vector<TensorName>>(&value))
          for (const TensorName& one : *list) readers[one.name] += change;
        if (const auto* list = std::get_if<std::vector<Integer>>(&value))
          for (const Integer& one : *list)
            if (const auto* number = std::get_if<SymbolName>(&one)) readers[number->name] += change;
      }
    };
    std::erase_if(nodes_, [](const ExportedNode& node) { return node.target.starts_with("aten._assert"); });
    for (const ExportedNode& node : nodes_) count(node, 1);
    for (const std::string& name : program_.outputs) ++readers[name];
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      ExportedNode& node = nodes_[i];
      const bool read = std::ranges::any_of(node.results, [&](const std::string& name) { return readers[name] > 0; });
      if (read || !node.target.starts_with("aten.") || is_in_place(node)) continue;
      count(node, -1);
      node.target.clear();
    }
    std::erase_if(nodes_, [](const ExportedNode& node) { return node.target.empty(); });
  }

  const ExportedProgram& program_;
  std::vector<ExportedNode> nodes_;
  std::map<std::string, std::size_t> producer_;
  std::map<std::string, int> parameters_;
  const std::set<std::string> constants_;
  std::set<std::size_t> read_;  // nodes of the last search
};

}  // namespace

std::vector<ExportedNode> simplified_nodes(const ExportedProgram& program) { return Patterns(program).simplified(); }

}  // namespace millrace::pt2
