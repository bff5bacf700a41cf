// Muon's update of the matrices among the segments of an optimizer (OptimizerSpec::Kind::muon), in float32.
#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "millrace/ops/optimizer.hpp"

namespace millrace::cpu {

// In double, in an order that depends neither on the processor nor on the number of threads. In optimizer.cpp.
double sum_of_squares(const float*, std::int64_t count);

class OrthogonalProducts;

class Muon {
 public:
  // The chunks are those of the spec. Both must outlive this object.
  Muon(const OptimizerSpec&, const OptimizerChunks&);
  ~Muon();
  // With shards: the momentum of this rank's elements, and their updates in args.updates. Comes before update().
  // unscale: the factor that makes the gradient of args the one to use.
  void write_updates(const OptimizerArgs& args, float unscale);
  // Updates this rank's elements of master and, without shards, of moment1.
  void update(const OptimizerArgs& args, float unscale, float learning_rate);

 private:
  struct Matrix {
    const OptimizerSegment* segment;
    std::int64_t first, count;              // its chunks in chunks()
    std::int64_t owned_first, owned_count;  // those of this rank, in chunks_.owned
    float factor;                           // on the learning rate
    OrthogonalProducts* products;
  };
  const OptimizerChunk* chunks(const Matrix& m) const { return (sharded_ ? all_ : chunks_).owned.data() + m.first; }
  const OptimizerChunk* owned(const Matrix& m) const { return chunks_.owned.data() + m.owned_first; }
  // Writes the update before the Newton-Schulz steps to x_, and returns its Frobenius norm.
  double prepare(const Matrix&, const OptimizerArgs&, float unscale);

  const OptimizerSpec& spec_;
  const OptimizerChunks& chunks_;
  bool sharded_;
  OptimizerChunks all_;  // with shards: those of all ranks
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<OrthogonalProducts>> products_;  // by shape
  std::vector<Matrix> matrices_;  // of which this rank owns elements
  std::vector<float> workspace_;  // NewtonSchulz::Workspace
  float* x_ = nullptr;            // in workspace_
  std::vector<double> squares_;   // of the chunks of a matrix
};

}  // namespace millrace::cpu
