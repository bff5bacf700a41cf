#include "model/pt2/context.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace::pt2 {

void refuse_unread(const ExportedProgram& program, const Graph& graph, const Node& node) {
  std::size_t number = 0;  // of the input: its passes are in the order of the network's inputs
  for (const Node& other : graph.nodes) {
    const bool input = std::holds_alternative<InputSpec>(other.spec);
    if (&other == &node && input && number < program.user_inputs.size())
      fail(Exit::config, "model.file: {} does not read its input '{}'. export it without it", program.path.string(),
           program.user_inputs[number].name);
    number += input;
  }
  fail(Exit::config, "model.file: {}: nothing reads the result of '{}'. export the network without it",
       program.path.string(), node.name);
}

std::string export_for_any_rows(const ExportedProgram& program) {
  constexpr const char* batch = "torch.export.Dim(\"batch\")";
  if (program.user_inputs.size() < 2) return fmt::format("dynamic_shapes=({{0: {}}},)", batch);
  std::vector<std::string> each(program.user_inputs.size(), "{0: batch}");
  return fmt::format("dynamic_shapes=({}), where batch = {}", fmt::join(each, ", "), batch);
}

Context::Context(GraphBuilder& b, const ExportedProgram& p, const ModelSpec& s)
    : builder(b), program(p), nodes(simplified_nodes(p)), spec(s), rows(b.shape(Graph::ids)[0]) {}

int Context::add_input(const NamedInput& input) {
  std::string name = input.name;
  while (!names_.insert(name).second || !names_.insert(name + ".raw").second) name += "_";
  Shape shape{rows};
  for (int axis = 0; axis < input.sample.rank; ++axis) shape.dims[std::size_t(shape.rank++)] = input.sample[axis];
  return builder.input(input.spec, name, input.begin, shape, input.type);
}

Value& Context::value(const Call& call, const std::string& name) {
  const auto found = values_.find(name);
  if (found == values_.end()) call.refuse(fmt::format("reads '{}', which is no tensor", name));
  if (found->second.stale)
    call.refuse(
        fmt::format("reads '{}', a view of values that were overwritten since. use an operation that is not "
                    "in place",
                    name));
  return found->second;
}

const Value* Context::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

std::int64_t Context::number(const Call& call, const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) call.refuse(fmt::format("reads '{}', which is no number", name));
  return found->second;
}

void Context::define(const std::string& name, Value v) {
  if (v.memory < 0) v.memory = memories_++;
  v.object = objects_++;
  values_.insert_or_assign(name, std::move(v));
}

void Context::overwrite(const std::string& argument, const std::string& result_name, Value result) {
  const Value old = values_.at(argument);
  result.memory = old.memory;
  result.object = old.object;
  for (auto& [name, v] : values_) {
    if (v.object == old.object)
      v = result;
    else if (v.memory == old.memory)
      v.stale = true;
  }
  values_.insert_or_assign(result_name, std::move(result));
}

std::optional<Constant> Context::as_constant(const Value& v) {
  if (v.kind == Value::Kind::constant) return *v.constant;
  if (v.kind != Value::Kind::ignored || v.tensor < 0 || v.stale) return std::nullopt;
  const auto known = buffers_.find(v.tensor);
  if (known != buffers_.end()) return known->second;
  const StoredTensor& tensor = program.tensors[std::size_t(v.tensor)];
  const auto count = std::size_t(checked_count(tensor.sizes));
  const auto read = [&]<class T>(std::vector<T> values) {
    TensorReader(program).read(tensor, std::span<T>(values));
    return Constant::of(tensor.sizes, {values.begin(), values.end()}, type_of(tensor.type));
  };
  return buffers_[v.tensor] =
             tensor.is_integer() ? read(std::vector<std::int64_t>(count)) : read(std::vector<float>(count));
}

// Each row has the constant, whose first axis is that of the rows. The samples are not read: zeros take their place.
Value Context::made_of(const Call& call, const Constant& constant) {
  if (constant.rank() < 1 || constant.sizes[0] != 1)
    call.refuse("reads a constant that is not the same for each row, which is not supported");
  Sizes sizes = constant.sizes;
  sizes[0] = rows_symbol;
  const std::int64_t count = checked_count(constant.sizes);
  std::vector<std::int32_t> nothing(std::size_t(count), -1);
  const int zeros = builder.gather(layer_name(call) + ".constant", inputs[0], Shape{rows, 1, count}, 1,
                                   Table<std::int32_t>(std::move(nothing)));
  return affine(*this, call, graph_value(zeros, Axes::contiguous(sizes)), Constant::filled({}, 1), constant);
}

Value Context::plain(const Call& call, Value v) {
  if (v.kind == Value::Kind::class_token) v = with_token(*this, call, v);
  if (v.kind == Value::Kind::numbers)
    call.refuse(
        "computes with integers that follow from the tokens, which is possible for the positions of RoBERTa and "
        "for the last token only");
  if (v.kind == Value::Kind::nothing) call.refuse("takes no elements");
  if (v.kind == Value::Kind::row_numbers)
    call.refuse("computes with the numbers of the rows. they can only be an index of the rows");
  if (const auto constant = as_constant(v); constant && !inputs.empty()) return made_of(call, *constant);
  if (v.kind != Value::Kind::graph)
    call.refuse(v.kind == Value::Kind::parameter || v.kind == Value::Kind::shifted
                    ? "computes with a parameter alone, which is not possible yet"
                    : "reads values that the samples do not change, which is not possible yet");
  while (!v.axes.selected.empty()) {
    const auto [atom, index] = v.axes.selected.back();
    const auto at = std::ranges::find(v.axes.stored, atom);
    const Atoms before(v.axes.stored.begin() + 1, at), after(at + 1, v.axes.stored.end());
    const Shape parts = shape_of(v.axes, {before, {atom}, after});
    v.graph = builder.slice(layer_name(call), shaped(call, v.graph, parts), 2, index, 1);
    v.axes.stored.erase(at);
    v.axes.selected.pop_back();
  }
  return v;
}

int Context::shaped(const Call& call, int graph, const Shape& to) {
  if (builder.shape(graph) == to) return graph;
  return builder.reshape(layer_name(call) + ".shape", graph, to);
}

Shape Context::shape_of(const Axes& axes, const std::vector<Atoms>& groups) const {
  Shape out{rows};
  for (const Atoms& group : groups) out.dims[std::size_t(out.rank++)] = axes.count(group);
  return out;
}

int Context::channels_last(const Call& call, Value& v, const Atoms& channels) {
  const Atoms own = channels;  // may be of v
  if (!is_suffix(own, v.axes.stored)) v = ordered(call, v, concatenated({without(v.axes.stored, own), own}));
  const std::int64_t count = v.axes.count(own);
  const Shape& now = builder.shape(v.graph);
  if (now.rank >= 2 && now[-1] == count) return v.graph;
  const std::int64_t positions = now.row_count() / count;
  return shaped(call, v.graph, positions == 1 ? Shape{rows, count} : Shape{rows, positions, count});
}

int Context::image(const Call& call, const Value& v) {
  const int rank = v.axes.rank();
  if (rank < 3 || rank > Shape::max_rank || !v.axes.begins_with_rows())
    call.refuse(fmt::format("needs an input (N, channels, extents...), but it is {}", v.axes.text()));
  Atoms expected = v.axes.logical[0];
  Shape shape{rows};
  for (int axis = 2; axis <= rank; ++axis) {
    const Atoms& atoms = v.axes.logical[std::size_t(axis < rank ? axis : 1)];
    expected.insert(expected.end(), atoms.begin(), atoms.end());
    shape.dims[std::size_t(shape.rank++)] = v.axes.count(atoms);
  }
  return shaped(call, ordered(call, v, expected).graph, shape);
}

std::string Context::layer_name(const Call& call, int tensor) {
  std::string name = call.node().name;
  if (tensor >= 0) {
    name = program.tensors[std::size_t(canonical(tensor))].name;
    for (const std::string end : {".weight", ".weight_ih_l0"})
      if (name.ends_with(end)) name.resize(name.size() - end.size());
  }
  std::string out = name;
  for (int number = 2; !names_.insert(out).second; ++number) out = fmt::format("{}_{}", name, number);
  return out;
}

// PyTorch's own name of tied parameters is that which its modules register first.
int Context::canonical(int tensor) const {
  const StoredTensor& t = program.tensors[std::size_t(tensor)];
  for (const GraphInput& input : program.inputs)
    if (input.kind == GraphInput::Kind::parameter && program.tensors[std::size_t(input.tensor)].same_storage(t))
      return input.tensor;
  return tensor;
}

// Neighbours in both orders are one extent.
ArchivePlace Context::place_of(const Call& call, const Source& source) const {
  ArchivePlace out;
  out.tensor = canonical(source.value.tensor);
  out.sizes = program.tensors[std::size_t(out.tensor)].sizes;
  const Axes& axes = source.value.axes;
  int previous = -1;
  for (const int atom : axes.stored) {
    const auto at = std::ranges::find(source.order, atom);
    const std::int64_t extent = axes.extents[std::size_t(atom)];
    const std::int64_t stride = axes.count(Atoms(at + 1, source.order.end()));
    if (previous >= 0 && at != source.order.begin() && *(at - 1) == previous) {
      out.extents[-1] *= extent;
      out.strides[std::size_t(out.extents.rank) - 1] = stride;
    } else {
      if (out.extents.rank == Shape::max_rank) call.refuse("has a weight whose axes are too many");
      out.strides[std::size_t(out.extents.rank)] = stride;
      out.extents.dims[std::size_t(out.extents.rank++)] = extent;
    }
    previous = atom;
  }
  return out;
}

void Context::attach(const Call& call, const std::vector<Source>& sources) {
  const int first = builder.parameter_count() - int(sources.size());
  for (std::size_t i = sources.size(); i-- > 0;) {
    const ArchivePlace place = place_of(call, sources[i]);
    const int own = first + int(i);
    const auto [shared, added] = parameters_.emplace(place.tensor, own);
    const std::string& name = program.tensors[std::size_t(place.tensor)].name;
    if (added)
      builder.place_parameter(own, name, place);
    else if (!builder.share_parameter(own, shared->second, place))
      call.refuse(fmt::format("uses the parameter '{}' in another way than an earlier node", name));
    else  // the later ones have moved by one
      for (auto& [tensor, number] : parameters_) number -= number > own;
  }
}

void Context::attach_statistics(const Call& call, int mean, int variance, float momentum) {
  if (!statistics_.insert(mean).second) call.refuse("uses the running statistics of an earlier node");
  builder.place_statistics(mean, variance, momentum);
}

}  // namespace millrace::pt2
