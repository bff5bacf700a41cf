// The layer of one line of model.layers.
#pragma once
#include "millrace/model/zoo.hpp"
#include "model/text_line.hpp"

namespace millrace {

// Adds the layer of a line whose kind is none of those below, `repeat` and `residual`.
int make_layer(GraphBuilder&, TextLine&, const std::string& name, int src, const ModelSpec&);
// The same for `add`, `concat` and `scale_by`. other: the result of the named line.
int make_join(GraphBuilder&, TextLine&, const std::string& name, int src, int other);
// The same for `attention`. documents: the result of the named line; -1: it names none.
int make_attention(GraphBuilder&, TextLine&, const std::string& name, int src, int documents, std::uint64_t seed);
// A loss of `src`. Returns the name of its target.
std::string make_loss(GraphBuilder&, TextLine&, const std::string& name, int src, const ModelSpec&);

}  // namespace millrace
