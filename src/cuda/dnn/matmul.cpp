#include "cuda/dnn/matmul.hpp"

#include <fmt/core.h>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

struct Traits {
  const char* text;
  bool bias;
  Aux aux;
};

const Traits& traits(Epilogue e) {
  static const Traits all[] = {{"", false, Aux::none},
                               {", bias", true, Aux::none},
                               {", relu", false, Aux::none},
                               {", bias, relu", true, Aux::none},
                               {", relu and its bits", false, Aux::bits},
                               {", bias, relu and its bits", true, Aux::bits},
                               {", gelu", false, Aux::none},
                               {", bias, gelu", true, Aux::none},
                               {", gelu and its source", false, Aux::values},
                               {", bias, gelu and its source", true, Aux::values},
                               {", relu's gradient", false, Aux::bits},
                               {", relu's gradient, bias gradient", true, Aux::bits},
                               {", gelu's gradient", false, Aux::values},
                               {", gelu's gradient, bias gradient", true, Aux::values},
                               {", bias gradient", true, Aux::none}};
  return all[int(e)];
}

}  // namespace

bool has_bias(Epilogue e) { return traits(e).bias; }
Aux aux_of(Epilogue e) { return traits(e).aux; }

std::int64_t aux_stride(Epilogue e, std::int64_t rows) {
  return aux_of(e) == Aux::bits ? (rows + 127) / 128 * 128 : rows;
}

std::size_t aux_bytes(const MatmulSpec& s) {
  const std::size_t count = std::size_t(aux_stride(s.epilogue, s.m) * s.n);
  switch (aux_of(s.epilogue)) {
    case Aux::bits:
      return count / 8;
    case Aux::values:
      return count * size_of(s.output);
    case Aux::none:
      break;
  }
  return 0;
}

std::unique_ptr<Matmul> Cublas::make(const MatmulSpec& spec) {
  auto found = find(spec);
  if (!found)
    fail(Exit::config, "cuBLAS has no kernel for the matrix multiplication {}. try another run.precision", str(spec));
  return found;
}

std::string str(const MatmulSpec& s) {
  return fmt::format("{} x {} x {} {} -> {}{}{}{}{}", s.m, s.n, s.k, name_of(s.input), name_of(s.output),
                     s.transpose_a ? ", A transposed" : "", s.transpose_b ? ", B transposed" : "",
                     traits(s.epilogue).text, s.add ? ", added" : "");
}

}  // namespace millrace::cuda
