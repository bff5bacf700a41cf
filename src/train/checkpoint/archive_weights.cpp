// The weights with which PyTorch has exported a network.
#include "millrace/model/pt2/import.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {
namespace {

class ArchiveWeights : public WeightSource {
 public:
  ArchiveWeights(const pt2::ExportedProgram& program, const Graph& graph) : values_(program, graph) {
    parameters_.assign(graph.parameters.size(), true);
    statistics_.assign(graph.stats.size(), true);
  }
  void read_parameter(int index, std::span<float> out) override { values_.read_parameter(index, out); }
  void read_statistics(int index, std::span<float> out) override { values_.read_statistics(index, out); }

 private:
  pt2::ArchiveValues values_;
};

}  // namespace

std::unique_ptr<WeightSource> open_archive_weights(const pt2::ExportedProgram& program, const Graph& graph) {
  return std::make_unique<ArchiveWeights>(program, graph);
}

}  // namespace millrace
