#include "millrace/ops/loss.hpp"

#include <limits>

#include "millrace/base/error.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

void CrossEntropySpec::check() const {
  if (src.rank < 2 || classes() < 1 || classes() > std::numeric_limits<std::int32_t>::max())
    fail(Exit::config, "cross-entropy: input {} has no classes, or more classes than int32 labels can hold", src.str());
  if (!class_weights.empty() && std::int64_t(class_weights.size()) != classes())
    fail(Exit::config, "cross-entropy: {} class weights for input {} with {} classes. give one for each class",
         class_weights.size(), src.str(), classes());
  if (dice > 0 && (src.rank < 3 || classes() > max_dice_classes))
    fail(Exit::config,
         "cross-entropy: input {} does not suit the Dice loss, which needs rows x positions x classes and at most {} "
         "classes. set model.dice = 0",
         src.str(), max_dice_classes);
  if (mix && (src.rank != 2 || dice > 0))
    fail(Exit::config,
         "cross-entropy: input {} does not suit mixed labels, which need one label a row and no Dice loss", src.str());
}

void PointwiseLossSpec::check() const {
  if (src.rank < 1 || src.row_count() < 1 || (kind == Kind::smooth_l1 && !(beta > 0)))
    fail(Exit::config, "{}: input {} has no features, or beta = {:g} is not above 0", name_of(kind), src.str(), beta);
  if (targets != DType::f32 && !(binary() && targets == DType::i32))
    fail(Exit::config, "{}: targets of type {} are not supported. use floating-point targets", name_of(kind),
         name_of(targets));
}

std::int64_t metric_count(const Spec& spec) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.metric_count(); }) return s.metric_count();
        return std::int64_t(0);
      },
      spec);
}

std::int64_t terms_of_row(const Spec& loss) {
  if (const auto* pointwise = std::get_if<PointwiseLossSpec>(&loss))
    return pointwise->binary() ? pointwise->src.row_count() : 1;
  const auto* chunked = std::get_if<LinearCrossEntropySpec>(&loss);
  return (chunked ? chunked->loss : std::get<CrossEntropySpec>(loss)).positions_of_row();
}

const LossTerm& loss_term(const Spec& loss) {
  if (const auto* pointwise = std::get_if<PointwiseLossSpec>(&loss)) return pointwise->term;
  const auto* chunked = std::get_if<LinearCrossEntropySpec>(&loss);
  return (chunked ? chunked->loss : std::get<CrossEntropySpec>(loss)).term;
}

}  // namespace millrace
