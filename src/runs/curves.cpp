#include "millrace/runs/curves.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/flat_json.hpp"
#include "runs/json_lines.hpp"
#include "runs/step_line.hpp"

namespace millrace {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void damaged(const std::filesystem::path& path, std::int64_t line, const char* why) {
  fail(Exit::data,
       "{}:{}: {}. remove the rest of the file from that line on; a resumed run does this itself up to its checkpoint",
       path.string(), line, why);
}

// The curves of a file, each with its field and the sampler of its current bin.
class CurveBuilder {
 public:
  explicit CurveBuilder(Curves& out) {
    follow(StepLine::loss, out.loss);
    follow(StepLine::lr, out.lr);
    follow(StepLine::grad_norm, out.grad_norm);
    follow(StepLine::loss_scale, out.loss_scale);
    follow(StepLine::samples_per_second, out.rate);
    follow(StepLine::step_ms, out.step_ms);
    for (const Phase p : {Phase::data_wait, Phase::copy, Phase::forward, Phase::backward, Phase::communication,
                          Phase::optimizer, Phase::other})
      follow(StepLine::first_phase + std::size_t(p), out.phase_ms[std::size_t(p)]);
  }
  void add(const StepLine& line) {
    for (Followed& f : followed_) f.bin.add(line.value(f.field, missing));
  }
  // Ends all bins before number `next`.
  void flush_to(std::int64_t next) {
    for (; bin_ < next; ++bin_)
      for (Followed& f : followed_) f.bin.flush(*f.curve);
  }
  void flush_last() { flush_to(bin_ + 1); }

 private:
  struct Followed {
    std::size_t field;
    Curve* curve;
    BinSampler bin;
  };
  void follow(std::size_t field, Curve& curve) { followed_.push_back({field, &curve, {}}); }
  std::vector<Followed> followed_;
  std::int64_t bin_ = 0;
};

}  // namespace

void BinSampler::add(double v) {
  if (!std::isfinite(v)) return;
  if (seen_ == 0) low_ = high_ = v;
  low_ = std::min(low_, v);
  high_ = std::max(high_, v);
  sum_ += v;
  if (seen_++ % stride_ != 0) return;
  if (kept_.size() == max_kept) {
    for (std::size_t i = 0; i < max_kept / 2; ++i) kept_[i] = kept_[2 * i];
    kept_.resize(max_kept / 2);
    stride_ *= 2;  // this value is number max_kept of the old stride, an even one: it belongs to the new stride too
  }
  kept_.push_back(v);
}

void BinSampler::flush(Curve& out) {
  double middle = missing;
  if (!kept_.empty()) {
    const auto half = kept_.begin() + std::ptrdiff_t(kept_.size() / 2);
    std::nth_element(kept_.begin(), half, kept_.end());
    middle = *half;
    if (kept_.size() % 2 == 0) middle = (middle + *std::max_element(kept_.begin(), half)) / 2;
  }
  out.low.push_back(seen_ ? low_ : missing);
  out.mid.push_back(middle);
  out.high.push_back(seen_ ? high_ : missing);
  out.mean.push_back(seen_ ? sum_ / double(seen_) : missing);
  kept_.clear();
  stride_ = 1;
  seen_ = 0;
  sum_ = 0;
}

double Curves::end(std::size_t bin) const { return std::min(begin(bin) + double(width), double(last) + 0.5); }

Curves read_curves(const std::filesystem::path& path, std::size_t max_bins) {
  Curves out;
  out.last = last_step(path);
  CurveBuilder curves(out);
  StepLine fields;
  std::int64_t previous = 0;
  read_lines(path, [&](std::string_view line, std::int64_t number) {
    if (!fields.parse(line)) damaged(path, number, "this is not the line of a step");
    const auto step = std::int64_t(fields.value(StepLine::step, missing));
    if (out.first == 0) {
      out.first = step;
      out.last = std::max(out.last, step);
      out.width = std::max<std::int64_t>(1, (out.last - step + std::int64_t(max_bins)) / std::int64_t(max_bins));
    }
    if (step <= previous) damaged(path, number, "its step is not above that of the line before");
    if (step > out.last) return;  // was written after last_step() read the file
    previous = step;
    curves.flush_to((step - out.first) / out.width);
    curves.add(fields);
    out.epoch = std::int64_t(fields.value(StepLine::epoch, missing));
    out.samples = std::int64_t(fields.value(StepLine::samples, missing));
    out.skipped += fields.value(StepLine::skipped, 0) == 1;
    out.last_loss = fields.value(StepLine::loss, missing);
  });
  if (previous > 0) curves.flush_last();
  return out;
}

std::vector<Validation> read_validations(const std::filesystem::path& path) {
  std::vector<Validation> out;
  read_lines(path, [&](std::string_view line, std::int64_t number) {
    Validation v{missing, missing, missing, missing};
    const bool valid = parse_flat_json(line, [&](std::string_view key, double value) {
      for (const auto& [name, member] : {std::pair{"step", &Validation::step},
                                         {"loss", &Validation::loss},
                                         {"accuracy", &Validation::accuracy},
                                         {"top5", &Validation::top5}})
        if (key == name) v.*member = value;
    });
    if (!valid || !(v.step >= 1)) damaged(path, number, "this is not the line of an evaluation");
    out.push_back(v);
  });
  return out;
}

}  // namespace millrace
