#include <type_traits>

#include "millrace/base/error.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

const char* name_of(Activation kind) {
  switch (kind) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::tanh:
      return "tanh";
  }
  return "?";
}

Activation activation_from(std::string_view name) {
  for (const auto kind : {Activation::none, Activation::relu, Activation::gelu, Activation::tanh})
    if (name == name_of(kind)) return kind;
  fail(Exit::config, "'", name, "' is not an activation. one of none, relu, gelu, tanh");
}

namespace {
struct Name {
  const char* operator()(const ConvSpec&) const { return "conv"; }
  const char* operator()(const LinearSpec&) const { return "linear"; }
  const char* operator()(const BatchNormSpec&) const { return "batch_norm"; }
  const char* operator()(const PoolSpec&) const { return "pool"; }
  const char* operator()(const ActivationSpec&) const { return "activation"; }
  const char* operator()(const AddSpec&) const { return "add"; }
  const char* operator()(const DropoutSpec&) const { return "dropout"; }
  const char* operator()(const InputSpec&) const { return "input"; }
  const char* operator()(const CrossEntropySpec&) const { return "cross_entropy"; }
  const char* operator()(const MseSpec&) const { return "mse"; }
};
}  // namespace

const char* name_of(const Spec& spec) { return std::visit(Name{}, spec); }

double flops_of(const Spec& spec) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.flops(); }) return s.flops();
        return 0.0;
      },
      spec);
}

}  // namespace millrace
