#include "millrace/ops/recurrent.hpp"

#include "millrace/base/align.hpp"

namespace millrace {

void RecurrentSpec::check() const {
  const char* name = kind == Kind::lstm ? "lstm" : kind == Kind::gru ? "gru" : "rnn";
  if (src.rank != 3 || src.count() < 1)
    fail(Exit::config, "{}: needs an input of rows x time steps x features, but it is {}. reshape it", name, src.str());
  if (units < 1 || units > std::int64_t(1) << 30)
    fail(Exit::config, "{}: {} units are not possible. use 1 to 2^30", name, units);
  MR_CHECK(!cell_state || kind == Kind::lstm);
}

RecurrentLayout::RecurrentLayout(const RecurrentSpec& s, std::int64_t rows, std::size_t scratch) {
  const bool train = s.mode == Mode::train, gru = s.kind == RecurrentSpec::Kind::gru;
  const std::size_t element = size_of(s.dtype);
  workspace_bytes = align64(scratch);
  std::size_t& kept = train ? saved_bytes : workspace_bytes;
  const auto reserve = [&](std::size_t& bytes, std::int64_t steps, std::int64_t width, std::size_t size) {
    const std::size_t at = bytes;
    bytes += align64(std::size_t(steps * rows * width) * size);
    return at;
  };
  const std::int64_t steps = s.steps(), states = train ? steps : 2;
  gates = reserve(kept, steps, s.width(), sizeof(float));
  state = reserve(kept, states, s.units, sizeof(float));
  hidden =
      s.kind != RecurrentSpec::Kind::lstm && s.dtype == DType::f32 ? state : reserve(kept, states, s.units, element);
  query = gru ? reserve(kept, train ? steps : 1, s.units, sizeof(float)) : 0;
  src = reserve(workspace_bytes, steps, s.features(), element);
  product = reserve(workspace_bytes, 1, s.width(), sizeof(float));
  if (!train) return;
  diff_ih = reserve(workspace_bytes, steps, s.width(), element);
  diff_hh = gru ? reserve(workspace_bytes, steps, s.width(), element) : diff_ih;
  diff_hidden = reserve(workspace_bytes, 1, s.units, sizeof(float));
  carry = reserve(workspace_bytes, 1, s.units, sizeof(float));
}

}  // namespace millrace
