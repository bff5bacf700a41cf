// Exported networks of PyTorch, as archives and as the JSON in them: read, and translated for small samples.
#include <memory>
#include <vector>

#include "fuzz.hpp"
#include "millrace/model/zoo.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "support/zip_writer.hpp"

namespace {

using namespace millrace;

// Of the first input, with the channels last; rank 0: too large to be quick.
Shape sample_of(const pt2::ExportedProgram& program) {
  Shape out;
  if (program.user_inputs.empty()) return out;
  const auto& sizes = program.user_inputs[0].sizes;
  if (sizes.size() < 2 || sizes.size() > Shape::max_rank) return out;
  for (std::size_t axis = 2; axis <= sizes.size(); ++axis) {
    const std::int64_t size = sizes[axis < sizes.size() ? axis : 1];
    if (size < 1 || size > 64) return Shape{};
    out.dims[std::size_t(out.rank++)] = size;
  }
  return out;
}

void translate(const pt2::ExportedProgram& program) {
  ModelSpec spec;
  spec.name = "pt2";
  spec.outputs = 5;
  spec.exported = std::make_shared<const pt2::ExportedProgram>(program);
  const Shape sample = sample_of(program);
  spec.tokens = sample.rank == 1 && program.user_inputs[0].type == pt2::ScalarType::i64;
  const DType type = spec.tokens ? DType::u16 : DType::u8;
  if (sample.rank > 0)
    build_model(spec, {2, sample, type, spec.tokens ? sample : Shape{}, true}, DType::f32, Mode::train);
}

void read(const std::string& bytes) {
  const fuzz::MemoryFile file(bytes);
  fuzz::refuses_or_works([&] {
    const pt2::ExportedProgram program = pt2::read_exported_program(file.path());
    pt2::describe(program);
    fuzz::refuses_or_works([&] { translate(program); });
    pt2::TensorReader reader(program);
    for (const pt2::StoredTensor& t : program.tensors)
      fuzz::refuses_or_works([&] {
        std::vector<float> values(std::size_t(t.count()));
        reader.read(t, values);
      });
  });
}

// Records of zeros, for all weights of the seeds.
const test::ZipRecords& weights() {
  static const test::ZipRecords all = [] {
    test::ZipRecords out;
    for (int i = 0; i < 40; ++i)
      out.emplace_back("net/data/weights/weight_" + std::to_string(i), std::string(8192, '\0'));
    return out;
  }();
  return all;
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
  test::ZipRecords records{
      {"net/models/model.json", rest.substr(0, zero)},
      {"net/data/weights/model_weights_config.json", zero == rest.npos ? "" : rest.substr(zero + 1)}};
  records.insert(records.end(), weights().begin(), weights().end());
  read(test::zip_of(records));
  return 0;
}
