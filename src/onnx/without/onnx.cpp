// Linked if the build has no libonnx.
#include "millrace/base/error.hpp"
#include "millrace/onnx/onnx_model.hpp"

namespace millrace {

void require_onnx() {
  fail(Exit::config,
       "--format onnx: this build cannot write ONNX. install libonnx-dev and libprotobuf-dev and build again, or use "
       "--format safetensors");
}

void write_onnx(const std::filesystem::path&, OnnxModel) { require_onnx(); }

}  // namespace millrace
