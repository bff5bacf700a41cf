// Networks of PyTorch as graphs of millrace's own operations. build_pt2() of zoo.hpp adds one to a graph.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"
#include "millrace/pt2/exported_program.hpp"

namespace millrace::pt2 {

// Whether build_pt2() knows an operation, such as "aten.conv2d.default". It may still refuse some of its arguments.
bool understands(const std::string& target);
// Error(config) that names each kind of operation that it does not know, with the first node of each.
void require_understood(const ExportedProgram&);
// The names of parameters that no node reads, such as those of an auxiliary output.
std::vector<std::string> unused_parameters(const ExportedProgram&);

// The values of the archive for a graph that was built from it, in the order of the graph's parameters.
class ArchiveValues {
 public:
  // Error(data): the archive has changed since it was read.
  ArchiveValues(const ExportedProgram&, const Graph&);
  ~ArchiveValues();
  // out: all elements of the parameter. Error(data): the archive is damaged.
  void read_parameter(int number, std::span<float> out);
  void read_statistics(int number, std::span<float> out);  // mean, then variance

 private:
  const ExportedProgram& program_;
  const Graph& graph_;
  TensorReader reader_;
};

}  // namespace millrace::pt2
