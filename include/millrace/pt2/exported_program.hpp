// Networks that PyTorch has exported: the archive of torch.export.save(torch.export.export(...)), a file NAME.pt2. The
// graph and the descriptions of the tensors are read at once, the values when they are asked for. Needs no PyTorch.
//
// Nothing is executed, unpickled or written. Archives of PyTorch 2.9 and newer are accepted (schema 8, with weights as
// plain bytes).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace millrace::pt2 {

// Numbers of PyTorch's ScalarType.
enum class ScalarType : int { u8 = 1, i8, i16, i32, i64, f16, f32, f64, boolean = 12, bf16 = 13 };
std::string name_of(ScalarType);

struct TensorName {
  std::string name;  // of a value of the graph; "": none, in a list
};
// The result of a node that is a number, such as the number of rows.
struct SymbolName {
  std::string name;
};
using Integer = std::variant<std::int64_t, SymbolName>;
// Of another kind: a sub-graph, an object of a class. kind: its key in the archive, "as_graph".
struct OtherArgument {
  std::string kind;
};
// std::monostate: None.
using Argument =
    std::variant<std::monostate, TensorName, std::vector<TensorName>, SymbolName, std::int64_t, double, bool,
                 std::string, std::vector<Integer>, std::vector<double>, std::vector<bool>, ScalarType, OtherArgument>;

struct ExportedNode {
  std::string name;    // of its first result
  std::string target;  // "aten.conv2d.default", "_operator.mul"
  // Arguments that equal the default of the operation are left out, unless they were written in Python.
  std::vector<std::pair<std::string, Argument>> arguments;
  std::vector<std::string> results;  // tensors or numbers; "": None
  bool list = false;                 // the results are one list
  std::string module;                // "layer1.0.conv1"; "" for the network itself
  std::string source;                // "net.py:13"; "": not recorded

  const Argument* find(const std::string& argument) const;  // null: it was left out
};

// A tensor with values in the archive. Several may share a record.
struct StoredTensor {
  std::string name;  // as in PyTorch's state_dict
  ScalarType type = ScalarType::f32;
  std::vector<std::int64_t> sizes, strides;  // in elements
  std::int64_t offset = 0;                   // in elements
  std::string record;                        // in the archive
  bool parameter = false, requires_grad = false;
  std::int64_t count() const;
  bool in_state_dict() const;                    // neither a constant nor a buffer that is not persistent
  bool is_integer() const;                       // also bool
  bool same_storage(const StoredTensor&) const;  // tied: the same elements in the same order
};

struct GraphInput {
  enum class Kind { parameter, buffer, constant, user };
  std::string name;  // in the graph
  Kind kind = Kind::user;
  int tensor = -1;  // index into ExportedProgram::tensors; -1: of the user
};

struct UserInput {
  std::string name;
  ScalarType type = ScalarType::f32;
  std::vector<std::int64_t> sizes;  // as exported
  std::vector<bool> dynamic;        // by axis
};

struct ExportedProgram {
  std::filesystem::path path;
  std::string torch_version;
  int schema_major = 0, schema_minor = 0;
  std::vector<GraphInput> inputs;  // in order
  std::vector<UserInput> user_inputs;
  std::vector<ExportedNode> nodes;   // in an order in which they can run
  std::vector<std::string> outputs;  // of the user; values of the graph
  std::vector<StoredTensor> tensors;
  std::string text = {};  // of program_text(), from which it was read; "": from the file
};

// Error(data): there is no such file, it is damaged, another program wrote it, or an older PyTorch did. The message
// says which, in one line.
ExportedProgram read_exported_program(const std::filesystem::path&);

// The program as text, for checkpoints: JSON with the records of the archive, in hexadecimal digits if they are no JSON
// themselves. Tensors for which in_checkpoint holds have no values. "": the text would have more than 64 MiB.
// Error(data): the archive cannot be read any more.
std::string program_text(const ExportedProgram&, const std::function<bool(const StoredTensor&)>& in_checkpoint);
// path: where the archive was. Error(data): it is no such text.
ExportedProgram read_program_text(const std::filesystem::path& path, const std::string& text);

// Lines of text for people: version, inputs, tensors and operations by kind. understands: whether an operation can be
// trained; null: nothing is said about that.
std::string describe(const ExportedProgram&, bool (*understands)(const std::string& target) = nullptr);

class Archive;

// Reads values of tensors of the program, in the order of their logical axes, the last one fastest.
class TensorReader {
 public:
  explicit TensorReader(const ExportedProgram&);  // Error(data): as of read_exported_program(), read_program_text()
  TensorReader(TensorReader&&) noexcept;
  ~TensorReader();
  // Error(data): the type is not a number, the record is damaged, or program_text() left its values out. out.size() is
  // count().
  void read(const StoredTensor&, std::span<float> out);
  void read(const StoredTensor&, std::span<std::int64_t> out);  // of integers and bool only

 private:
  template <class T>
  void read_as(const StoredTensor&, std::span<T> out);
  std::unique_ptr<Archive> archive_;
};

}  // namespace millrace::pt2
