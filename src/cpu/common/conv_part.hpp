// One of the three computations of a convolution, in another way than oneDNN's.
#pragma once
#include <string>

#include "millrace/ops/op.hpp"

namespace millrace::cpu {

class ConvPart {
 public:
  // forward: computes dst from src[0]. data: computes diff_src[0] from diff_dst.
  enum class Of { forward, data };

  virtual ~ConvPart() = default;
  virtual std::size_t workspace() const = 0;
  virtual std::string implementation() const = 0;  // "9 x gemm:jit"
  virtual double work_share() const { return 1; }  // see WorkShare
  virtual void repack(const OpArgs&) {}
  virtual void run(const OpArgs&) = 0;
};

}  // namespace millrace::cpu
