// Networks as text, for a small image.
#include <sstream>

#include "fuzz.hpp"
#include "millrace/model/zoo.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  if (size > 400) return 0;
  ModelSpec spec;
  spec.name = "layers";
  spec.outputs = 3;
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  for (std::string line; std::getline(lines, line);) spec.layers.push_back(line);
  fuzz::refuses_or_works([&] { build_model(spec, {2, {8, 8, 3}, DType::u8, {}, true}, DType::f32, Mode::train); });
  return 0;
}
