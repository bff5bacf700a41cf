// The form in ONNX of each operation: nodes that compute node.dst. Those of training alone have none.
#pragma once
#include "onnx/assembler.hpp"

namespace millrace {

// layers.cpp
void add_node(Assembler&, const Node&, const ConvSpec&);
void add_node(Assembler&, const Node&, const TransposedConvSpec&);
void add_node(Assembler&, const Node&, const LinearSpec&);
void add_node(Assembler&, const Node&, const BatchNormSpec&);
void add_node(Assembler&, const Node&, const GroupNormSpec&);
void add_node(Assembler&, const Node&, const LayerNormSpec&);
void add_node(Assembler&, const Node&, const PoolSpec&);
// pointwise.cpp
void add_node(Assembler&, const Node&, const ActivationSpec&);
void add_node(Assembler&, const Node&, const DropoutSpec&);
void add_node(Assembler&, const Node&, const AddSpec&);
void add_node(Assembler&, const Node&, const GatedSpec&);
void add_node(Assembler&, const Node&, const ScaleSpec&);
void add_node(Assembler&, const Node&, const PreluSpec&);
void add_node(Assembler&, const Node&, const ScaleBySpec&);
void add_node(Assembler&, const Node&, const ConcatSpec&);
void add_node(Assembler&, const Node&, const SliceSpec&);
void add_node(Assembler&, const Node&, const ReshapeSpec&);
void add_node(Assembler&, const Node&, const UpsampleSpec&);
// tokens.cpp
void add_node(Assembler&, const Node&, const EmbeddingSpec&);
void add_node(Assembler&, const Node&, const PositionEmbeddingSpec&);
void add_node(Assembler&, const Node&, const DocumentsSpec&);
void add_node(Assembler&, const Node&, const AttentionSpec&);
void add_node(Assembler&, const Node&, const RotarySpec&);
// recurrent.cpp
void add_node(Assembler&, const Node&, const RecurrentSpec&);
// tables.cpp
void add_node(Assembler&, const Node&, const GatherSpec&);
void add_node(Assembler&, const Node&, const AffineSpec&);
void add_node(Assembler&, const Node&, const PowerSpec&);
void add_node(Assembler&, const Node&, const IndexedBiasSpec&);
void add_node(Assembler&, const Node&, const SoftmaxSpec&);
void add_node(Assembler&, const Node&, const BatchedMatmulSpec&);
// ends.cpp
void add_node(Assembler&, const Node&, const InputSpec&);
void add_output(Assembler&, const OnnxOutput&);

// An activation of a value of the model. Returns the name of its result.
std::string add_activation(Assembler&, const std::string& name, const std::string& src, Activation);

}  // namespace millrace
