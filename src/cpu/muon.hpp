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
  // The chunks are those of the spec, which has no shards. Both must outlive this object.
  Muon(const OptimizerSpec&, const OptimizerChunks&);
  ~Muon();
  // Updates master and moment1 of all matrices. unscale: the factor that makes the gradient of args the one to use.
  void update(const OptimizerArgs& args, float unscale, float learning_rate);

 private:
  struct Matrix {
    const OptimizerSegment* segment;
    std::int64_t first, count;  // its chunks
    float factor;               // on the learning rate
    OrthogonalProducts* products;
  };
  // Writes the update before the Newton-Schulz steps to x_, and returns its Frobenius norm.
  double advance_momentum(const Matrix&, const OptimizerArgs&, float unscale);

  const OptimizerSpec& spec_;
  const OptimizerChunks& chunks_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<OrthogonalProducts>> products_;  // by shape
  std::vector<Matrix> matrices_;
  std::vector<float> workspace_;  // NewtonSchulz::Workspace
  float* x_ = nullptr;            // in workspace_
  std::vector<double> squares_;   // of the chunks of a matrix
};

}  // namespace millrace::cpu
