// The file, by the definition of the format that comes with libonnx, and Protocol Buffers.
#define ONNX_ML 1  // as libonnx was built
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <onnx/onnx_pb.h>

#include <limits>
#include <utility>

#include "millrace/base/atomic_file.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/version.hpp"
#include "millrace/onnx/onnx_model.hpp"

namespace millrace {
namespace {

constexpr std::int64_t format_version = 8;  // the first one with the operations that are used

// A file begins with its first two fields: format_version and the name of the program.
const std::string& beginning() {
  static const std::string bytes = [] {
    ::onnx::ModelProto model;
    model.set_ir_version(format_version);
    model.set_producer_name("millrace");
    return model.SerializeAsString();
  }();
  return bytes;
}

void write(::onnx::AttributeProto& to, const OnnxAttribute& attribute) {
  to.set_name(attribute.name);
  if (const auto* integer = std::get_if<std::int64_t>(&attribute.value)) {
    to.set_type(::onnx::AttributeProto::INT);
    to.set_i(*integer);
  } else if (const auto* number = std::get_if<float>(&attribute.value)) {
    to.set_type(::onnx::AttributeProto::FLOAT);
    to.set_f(*number);
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    to.set_type(::onnx::AttributeProto::STRING);
    to.set_s(*text);
  } else if (const auto* words = std::get_if<std::vector<std::string>>(&attribute.value)) {
    to.set_type(::onnx::AttributeProto::STRINGS);
    for (const std::string& word : *words) to.add_strings(word);
  } else {
    to.set_type(::onnx::AttributeProto::INTS);
    for (const std::int64_t value : std::get<std::vector<std::int64_t>>(attribute.value)) to.add_ints(value);
  }
}

void write(::onnx::NodeProto& to, const OnnxNode& node) {
  to.set_op_type(node.type);
  to.set_name(node.name);
  for (const std::string& input : node.inputs) to.add_input(input);
  for (const std::string& output : node.outputs) to.add_output(output);
  for (const OnnxAttribute& attribute : node.attributes) write(*to.add_attribute(), attribute);
}

void write(::onnx::ValueInfoProto& to, const OnnxValue& value) {
  to.set_name(value.name);
  auto& tensor = *to.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(int(value.type));
  for (std::size_t axis = 0; axis < value.shape.size(); ++axis) {
    auto& extent = *tensor.mutable_shape()->add_dim();
    if (axis == 0)
      extent.set_dim_param("batch");
    else
      extent.set_dim_value(value.shape[axis]);
  }
}

void write(::onnx::TensorProto& to, OnnxTensor tensor) {
  to.set_name(tensor.name);
  to.set_data_type(int(tensor.type));
  for (const std::int64_t extent : tensor.shape) to.add_dims(extent);
  to.set_raw_data(std::move(tensor.values));
}

void fill(::onnx::ModelProto& to, OnnxModel& model) {
  to.set_ir_version(format_version);
  to.set_producer_name("millrace");
  to.set_producer_version(version);
  auto& opset = *to.add_opset_import();
  opset.set_domain("");
  opset.set_version(onnx_opset);
  ::onnx::GraphProto& graph = *to.mutable_graph();
  graph.set_name("network");
  for (const OnnxNode& node : model.nodes) write(*graph.add_node(), node);
  for (OnnxTensor& tensor : model.constants) write(*graph.add_initializer(), std::move(tensor));
  for (const OnnxValue& value : model.inputs) write(*graph.add_input(), value);
  for (const OnnxValue& value : model.outputs) write(*graph.add_output(), value);
  for (const auto& [key, value] : model.metadata) {
    auto& entry = *to.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
}

}  // namespace

void require_onnx() {}

void write_onnx(const std::filesystem::path& path, OnnxModel model) {
  require_own_file(path, beginning());
  ::onnx::ModelProto file;
  fill(file, model);
  if (file.ByteSizeLong() > std::size_t(std::numeric_limits<std::int32_t>::max()))
    fail(Exit::config, "{}: the model has more than 2 GiB, which a file in this format cannot hold", path.string());
  AtomicFile out(path);
  {
    google::protobuf::io::FileOutputStream stream(out.descriptor());
    const bool good = file.SerializeToZeroCopyStream(&stream) && stream.Flush();
    if (!good) out.fail_writing(stream.GetErrno());
  }
  out.finish();
}

}  // namespace millrace
