// Arrays and tables in other formats: idx, .npy, .npz and CSV, plain or gzipped, raw tokens, and safetensors.
#include <vector>

#include "data/pack/importers.hpp"
#include "fuzz.hpp"
#include "millrace/weights/safetensors.hpp"

namespace {

void read_some(const millrace::RowFile& file) {
  using namespace millrace;
  const std::int64_t rows = std::min<std::int64_t>(file.rows(), 3), one = file.row().count();
  if (one > (1 << 20)) return;
  std::vector<char> out(std::size_t(rows * one) * size_of(file.dtype()) + 1);
  file.read(0, rows, out.data());
  file.read(file.rows() - rows, rows, out.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  fuzz::Choices choose({reinterpret_cast<const char*>(data), size});
  const unsigned kind = choose.below(6);
  const fuzz::MemoryFile file(choose.rest());
  fuzz::refuses_or_works([&] {
    if (kind == 0) read_some(*open_idx(file.path()));
    if (kind == 1) read_some(*open_npy(file.path()));
    if (kind == 2) read_some(*open_npz(file.path(), "x"));
    if (kind == 3) {
      const RowPair pair = open_csv(file.path(), "y", false);
      read_some(*pair.x), read_some(*pair.y);
    }
    if (kind == 4) {
      ImportOptions options;
      options.x = {file.path()}, options.token_bytes = 2, options.context = 3;
      const auto importer = import_tokens(options);
      std::vector<char> x(64 * 16), y(64 * 16);
      importer->read(0, std::min<std::int64_t>(2, importer->rows()), x.data(), y.data());
    }
    if (kind == 5) {
      const SafetensorsFile weights(file.path());
      for (const auto& entry : weights.tensors()) {
        const StoredTensor& tensor = entry.second;
        std::vector<float> some(std::size_t(std::min<std::int64_t>(tensor.count(), 1000)));
        fuzz::refuses_or_works([&] { weights.read(tensor, tensor.count() - std::int64_t(some.size()), some); });
      }
    }
  });
  return 0;
}
