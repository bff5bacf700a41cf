// A network in the format ONNX (https://onnx.ai) as plain data, and the file that holds it. No other file needs the
// headers of the format.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace millrace {

// The set of operations: the first one that has LayerNormalization.
inline constexpr std::int64_t onnx_opset = 17;

using OnnxShape = std::vector<std::int64_t>;  // extents, or numbers of axes

enum class OnnxType { f32 = 1, i64 = 7, boolean = 9 };  // the numbers of TensorProto

struct OnnxAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<std::string>> value;
};

struct OnnxNode {
  std::string type, name;
  std::vector<std::string> inputs, outputs;  // values by name; "": an optional input that is left out
  std::vector<OnnxAttribute> attributes = {};
};

struct OnnxTensor {
  std::string name;
  OnnxType type = OnnxType::f32;
  OnnxShape shape;
  std::string values;  // little-endian
};

// An input or a result of the network. shape[0] is the number of samples, which is free: -1.
struct OnnxValue {
  std::string name;
  OnnxType type = OnnxType::f32;
  OnnxShape shape;
};

struct OnnxModel {
  std::vector<OnnxNode> nodes;        // in an order in which they can run
  std::vector<OnnxTensor> constants;  // weights and other values that do not depend on the samples
  std::vector<OnnxValue> inputs, outputs;
  std::map<std::string, std::string> metadata;
};

// Error(config): this build has no ONNX. The message names the package.
void require_onnx();
// Replaces a file that millrace wrote. Error(data): another program wrote it, or it cannot be written, such as on a
// full disk; then nothing is left. Error(config): as of require_onnx(), or the weights exceed what one file can hold.
void write_onnx(const std::filesystem::path&, OnnxModel);

}  // namespace millrace
