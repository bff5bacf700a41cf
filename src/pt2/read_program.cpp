// From the records of an archive to an ExportedProgram.
#include <set>

#include "pt2/archive.hpp"
#include "pt2/json.hpp"
#include "pt2/stored_tensor.hpp"

namespace millrace::pt2 {
namespace {

constexpr std::uint64_t max_json = 256 << 20;
constexpr int max_depth = 64, max_rank = 64;

void require_readable(const Archive& archive) {
  const auto refuse = [&](const std::string& what) {
    fail(Exit::data, "{} {}. write it with torch.export.save of PyTorch 2.9 or newer", archive.path(), what);
  };
  if (archive.has("data.pkl")) refuse("was written by torch.save or torch.jit.save, and holds no exported graph");
  if (archive.has("serialized_exported_program.json")) refuse("was written by PyTorch 2.7 or older");
  if (!archive.has(graph_record)) refuse("holds no exported network (" + graph_record + " is missing)");
  if (archive.has("byteorder") && archive.read("byteorder", 16) != "little")
    fail(Exit::data, "{} holds big-endian numbers. export the network on another machine", archive.path());
}

void require_version(const Archive& archive, const ExportedProgram& program) {
  if (program.schema_major != 8)
    fail(Exit::data,
         "{} has version {}.{} of torch.export's schema (PyTorch {}), but this build reads version 8. export the "
         "network with a PyTorch of 2.9 to 2.15, or use a newer millrace",
         archive.path(), program.schema_major, program.schema_minor, program.torch_version);
  if (!archive.has(weights_record))
    fail(Exit::data,
         "{} was written by PyTorch {}, which pickles the weights. export the network again with PyTorch 2.9 or newer",
         archive.path(), program.torch_version);
}

std::vector<std::int64_t> integers_of(const json& sizes) {
  std::vector<std::int64_t> out;
  for (const json& size : sizes) out.push_back(integer_of(size.at("as_int")));
  return out;
}

// Adds the tensors of a JSON record. folder: that of their records.
void add_tensors(const Archive& archive, const std::string& record, const std::string& folder, ExportedProgram& out) {
  const json document = parse_json(archive.read(record, max_json));
  for (const auto& [name, entry] : document.at("config").items()) {
    if (entry.at("use_pickle").get<bool>())
      fail(Exit::data, "the tensor '{}' is pickled, because its class is not torch.Tensor. make it a plain tensor",
           name);
    const json& meta = entry.at("tensor_meta");
    StoredTensor t;
    t.name = name;
    t.type = ScalarType(int(integer_of(meta.at("dtype"))));
    t.sizes = integers_of(meta.at("sizes"));
    t.strides = integers_of(meta.at("strides"));
    t.offset = integer_of(meta.at("storage_offset").at("as_int"));
    t.record = folder + entry.at("path_name").get<std::string>();
    t.parameter = entry.at("is_param").get<bool>();
    t.requires_grad = meta.at("requires_grad").get<bool>();
    require_fits(t, archive.size(t.record));
    out.tensors.push_back(std::move(t));
  }
}

int find_tensor(const ExportedProgram& program, const std::string& name, bool constant) {
  for (std::size_t i = 0; i < program.tensors.size(); ++i)
    if (program.tensors[i].name == name && program.tensors[i].record.starts_with(constants_folder) == constant)
      return int(i);
  fail(Exit::data, "the tensor '{}' has no values", name);
}

void add_user_input(const std::string& name, const json& values, ExportedProgram& out) {
  const json& meta = values.at(name);
  UserInput input{name, ScalarType(int(integer_of(meta.at("dtype")))), {}, {}};
  const json& sizes = meta.at("sizes");
  if (sizes.size() > std::size_t(max_rank)) fail(Exit::data, "the input '{}' has {} axes", name, sizes.size());
  for (const json& size : sizes) {
    const auto& [kind, content] = tagged(size);
    const bool dynamic = kind != "as_int";
    const json* extent = dynamic ? nullptr : &content;
    if (dynamic && content.contains("hint") && !content["hint"].is_null()) extent = &content["hint"].at("as_int");
    input.sizes.push_back(extent ? integer_of(*extent) : 0);
    input.dynamic.push_back(dynamic);
  }
  out.user_inputs.push_back(std::move(input));
}

void add_input(const json& spec, const json& values, ExportedProgram& out) {
  const auto& [kind, content] = tagged(spec);
  GraphInput input;
  if (kind == "user_input") {
    const auto& [type, argument] = tagged(content.at("arg"));
    if (type != "as_tensor") fail(Exit::data, "an argument of the network is no tensor, but {}", type);
    input.name = argument.at("name");
    add_user_input(input.name, values, out);
  } else {
    input.name = content.at("arg").at("name");
    if (kind == "parameter") {
      input.kind = GraphInput::Kind::parameter;
      input.tensor = find_tensor(out, content.at("parameter_name"), false);
    } else if (kind == "buffer") {
      input.kind = GraphInput::Kind::buffer;
      input.tensor = find_tensor(out, content.at("buffer_name"), !content.at("persistent").get<bool>());
    } else if (kind == "tensor_constant") {
      input.kind = GraphInput::Kind::constant;
      input.tensor = find_tensor(out, content.at("tensor_constant_name"), true);
    } else {
      fail(Exit::data, "the network has an input of the kind {}", kind);
    }
  }
  out.inputs.push_back(std::move(input));
}

void add_output(const json& spec, ExportedProgram& out) {
  const auto& [kind, content] = tagged(spec);
  if (kind != "user_output")
    fail(Exit::data,
         "the graph returns more than the network does ({}). save what torch.export.export returns, without "
         "run_decompositions",
         kind);
  const auto& [type, argument] = tagged(content.at("arg"));
  out.outputs.push_back(type == "as_tensor" ? argument.at("name").get<std::string>() : "");
}

// The numbers and names of one graph: each value is written once, before it is read.
void require_order(const ExportedProgram& program) {
  std::set<std::string> known;
  const auto define = [&](const std::string& name) {
    if (!name.empty() && !known.insert(name).second) fail(Exit::data, "two values are called '{}'", name);
  };
  const auto use = [&](const std::string& name) {
    if (!name.empty() && !known.contains(name)) fail(Exit::data, "the value '{}' is read before it is computed", name);
  };
  for (const GraphInput& input : program.inputs) define(input.name);
  for (const ExportedNode& node : program.nodes) {
    for (const auto& [name, value] : node.arguments) {
      if (const auto* tensor = std::get_if<TensorName>(&value)) use(tensor->name);
      if (const auto* number = std::get_if<SymbolName>(&value)) use(number->name);
      if (const auto* list = std::get_if<std::vector<TensorName>>(&value))
        for (const TensorName& one : *list) use(one.name);
      if (const auto* list = std::get_if<std::vector<Integer>>(&value))
        for (const Integer& one : *list)
          if (const auto* number = std::get_if<SymbolName>(&one)) use(number->name);
    }
    for (const std::string& result : node.results) define(result);
  }
  for (const std::string& output : program.outputs) use(output);
}

void read_graph(const json& document, ExportedProgram& out) {
  const json& module = document.at("graph_module");
  const json& graph = module.at("graph");
  const json& signature = module.at("signature");
  for (const json& spec : signature.at("input_specs")) add_input(spec, graph.at("tensor_values"), out);
  for (const json& node : graph.at("nodes")) add_node(node, out.nodes);
  for (const json& spec : signature.at("output_specs")) add_output(spec, out);
  require_order(out);
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (std::uint8_t(c) < 0x20) c = ' ';
  return text.substr(0, 500);
}

}  // namespace

json parse_json(const std::string& text) {
  return json::parse(text, [](int depth, json::parse_event_t, json&) {
    if (depth > max_depth) fail(Exit::data, "its JSON has more than {} levels", max_depth);
    return true;
  });
}

std::int64_t integer_of(const json& value) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
    fail(Exit::data, "'{}' is no integer of 64 bits",
         one_line(value.dump(-1, ' ', true, json::error_handler_t::replace)));
  return value.get<std::int64_t>();
}

const std::pair<const std::string, json>& tagged(const json& value) {
  const auto& object = value.get_ref<const json::object_t&>();
  if (object.size() != 1)
    fail(Exit::data, "an object of {} members stands where one member is expected", object.size());
  return *object.begin();
}

static ExportedProgram read_program(const Archive& archive) {
  require_readable(archive);
  ExportedProgram out;
  out.path = archive.path();
  try {
    const json document = parse_json(archive.read(graph_record, max_json));
    const json& version = document.at("schema_version");
    out.schema_major = int(std::min<std::int64_t>(integer_of(version.at("major")), 1 << 20));
    out.schema_minor = int(std::min<std::int64_t>(integer_of(version.at("minor")), 1 << 20));
    out.torch_version = one_line(document.value("torch_version", "of an unknown version"));
    require_version(archive, out);
    add_tensors(archive, weights_record, weights_folder, out);
    if (archive.has(constants_record)) add_tensors(archive, constants_record, constants_folder, out);
    read_graph(document, out);
  } catch (const json::exception& e) {
    fail(Exit::data, "{} is damaged, or of a newer PyTorch ({}). export the network again", archive.path(),
         one_line(e.what()));
  } catch (const Error& e) {
    const std::string why = e.what();
    if (why.starts_with(archive.path())) throw;
    fail(e.code(), "{} cannot be used: {}", archive.path(), one_line(why));
  }
  return out;
}

ExportedProgram read_exported_program(const std::filesystem::path& path) { return read_program(Archive(path)); }

ExportedProgram read_program_text(const std::filesystem::path& path, const std::string& text) {
  ExportedProgram out = read_program(Archive(path, text));
  out.text = text;
  return out;
}

}  // namespace millrace::pt2
