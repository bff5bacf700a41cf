#include "millrace/runs/curves.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/flat_json.hpp"
#include "runs/json_lines.hpp"

namespace millrace {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void damaged(const std::filesystem::path& path, std::int64_t line, const char* why) {
  fail(Exit::data, path.string(), ":", line, ": ", why,
       ". remove the file from that line on; a run that is started again does so up to its checkpoint");
}

// A line's values, by the names that it knows.
struct Fields {
  std::vector<std::pair<std::string, double>> all;
  std::size_t at = 0;
  void put(std::string_view key, double value) {
    for (std::size_t k = 0; k < all.size(); ++k) {  // they come in order
      auto& field = all[(at + k) % all.size()];
      if (field.first != key) continue;
      field.second = value, at = (at + k + 1) % all.size();
      return;
    }
  }
  void clear() {
    for (auto& field : all) field.second = nothing;
    at = 0;
  }
};

}  // namespace

void BinSampler::add(double v) {
  if (!std::isfinite(v)) return;
  if (seen_ == 0) low_ = high_ = v;
  low_ = std::min(low_, v), high_ = std::max(high_, v), sum_ += v;
  if (seen_++ % stride_ != 0) return;
  if (kept_.size() == most) {
    for (std::size_t i = 0; i < most / 2; ++i) kept_[i] = kept_[2 * i];
    kept_.resize(most / 2), stride_ *= 2;  // `most` strides of before are even: this value stays
  }
  kept_.push_back(v);
}

void BinSampler::flush(Curve& out) {
  double middle = nothing;
  if (!kept_.empty()) {
    const auto half = kept_.begin() + std::ptrdiff_t(kept_.size() / 2);
    std::nth_element(kept_.begin(), half, kept_.end());
    middle = *half;
    if (kept_.size() % 2 == 0) middle = (middle + *std::max_element(kept_.begin(), half)) / 2;
  }
  out.low.push_back(seen_ ? low_ : nothing), out.high.push_back(seen_ ? high_ : nothing);
  out.mid.push_back(middle), out.mean.push_back(seen_ ? sum_ / double(seen_) : nothing);
  kept_.clear();
  stride_ = 1, seen_ = 0, sum_ = 0;
}

double Curves::end(std::size_t bin) const { return std::min(begin(bin) + double(width), double(last) + 0.5); }

Curves read_curves(const std::filesystem::path& path, std::size_t max_bins) {
  Curves out;
  out.last = last_step(path);
  Fields fields{{{"step", 0}, {"epoch", 0}, {"samples", 0}, {"skipped", 0}}};
  std::vector<Curve*> curves;
  const auto follow = [&](std::string name, Curve& curve) {
    fields.all.emplace_back(std::move(name), 0), curves.push_back(&curve);
  };
  const std::size_t others = fields.all.size();
  follow("loss", out.loss), follow("lr", out.lr), follow("grad_norm", out.grad_norm);
  follow("loss_scale", out.loss_scale), follow("samples_per_second", out.rate), follow("step_ms", out.step_ms);
  for (const Phase p : {Phase::data_wait, Phase::copy, Phase::forward, Phase::backward, Phase::communication,
                        Phase::optimizer, Phase::other})
    follow(cat(name_of(p), "_ms"), out.phase_ms[std::size_t(p)]);
  std::vector<BinSampler> samples(curves.size());
  std::int64_t bin = 0;
  const auto flush_to = [&](std::int64_t next) {
    for (; bin < next; ++bin)
      for (std::size_t c = 0; c < curves.size(); ++c) samples[c].flush(*curves[c]);
  };
  std::int64_t before = 0;
  read_lines(path, [&](std::string_view line, std::int64_t number) {
    fields.clear();
    if (!parse_flat_json(line, [&](std::string_view key, double value) { fields.put(key, value); }) ||
        !(fields.all[0].second >= 1))
      damaged(path, number, "this is no step's line");
    const auto step = std::int64_t(fields.all[0].second);
    if (out.first == 0) {
      out.first = step;
      out.last = std::max(out.last, step);
      out.width = std::max<std::int64_t>(1, (out.last - step + std::int64_t(max_bins)) / std::int64_t(max_bins));
    }
    if (step <= before) damaged(path, number, "its step does not come after the one before");
    if (step > out.last) return;  // written since
    before = step;
    flush_to((step - out.first) / out.width);
    for (std::size_t c = 0; c < curves.size(); ++c) samples[c].add(fields.all[others + c].second);
    out.epoch = std::int64_t(fields.all[1].second), out.samples = std::int64_t(fields.all[2].second);
    out.skipped += fields.all[3].second == 1, out.last_loss = fields.all[others].second;
  });
  if (before > 0) flush_to(bin + 1);
  return out;
}

std::vector<Validation> read_validations(const std::filesystem::path& path) {
  std::vector<Validation> out;
  read_lines(path, [&](std::string_view line, std::int64_t number) {
    Validation v{nothing, nothing, nothing, nothing};
    const bool good = parse_flat_json(line, [&](std::string_view key, double value) {
      for (const auto& [name, member] : {std::pair{"step", &Validation::step},
                                         {"loss", &Validation::loss},
                                         {"accuracy", &Validation::accuracy},
                                         {"top5", &Validation::top5}})
        if (key == name) v.*member = value;
    });
    if (!good || !(v.step >= 1)) damaged(path, number, "this is no evaluation's line");
    out.push_back(v);
  });
  return out;
}

}  // namespace millrace
