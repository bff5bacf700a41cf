// Exported networks of PyTorch, as archives and as the JSON in them.
#include <vector>

#include "fuzz.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "support/zip_writer.hpp"

namespace {

using namespace millrace;

void read(const std::string& bytes) {
  const fuzz::MemoryFile file(bytes);
  fuzz::refuses_or_works([&] {
    const pt2::ExportedProgram program = pt2::read_exported_program(file.path());
    pt2::describe(program);
    pt2::TensorReader reader(program);
    for (const pt2::StoredTensor& t : program.tensors)
      fuzz::refuses_or_works([&] {
        std::vector<float> values(std::size_t(t.count()));
        reader.read(t, values);
      });
  });
}

}  // namespace

// The first byte says what the rest is: an archive, or the two records of JSON, divided by a byte of zero.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices({reinterpret_cast<const char*>(data), size});
  const bool archive = choices.below(2) == 0;
  const std::string rest(choices.rest());
  if (archive) {
    read(rest);
    return 0;
  }
  const auto zero = rest.find('\0');
  read(test::zip_of({{"net/models/model.json", rest.substr(0, zero)},
                     {"net/data/weights/model_weights_config.json", zero == rest.npos ? "" : rest.substr(zero + 1)},
                     {"net/data/weights/weight_0", std::string(64, 'a')}}));
  return 0;
}
