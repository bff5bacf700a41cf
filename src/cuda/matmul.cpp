#include "matmul.hpp"

#include "millrace/base/error.hpp"

namespace millrace::cuda {

std::unique_ptr<Matmul> Cublas::make(const MatmulSpec& spec) {
  auto found = find(spec);
  if (!found) fail(Exit::config, "cuBLAS has no kernel for the product ", str(spec), ". try another train.precision");
  return found;
}

std::string str(const MatmulSpec& s) {
  static const char* const epilogues[] = {"", ", bias", ", relu", ", bias, relu", ", bias gradient"};
  return cat(s.m, " x ", s.n, " x ", s.k, " ", name_of(s.input), " -> ", name_of(s.output),
             s.transpose_a ? ", A transposed" : "", s.transpose_b ? ", B transposed" : "", epilogues[int(s.epilogue)]);
}

}  // namespace millrace::cuda
