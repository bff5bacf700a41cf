#include "train/logging/run_logger.hpp"

#include <array>
#include <cmath>
#include <list>
#include <vector>

#include "train/session/evaluation.hpp"

namespace millrace {

RunLogger::RunLogger(const Session& s, const RunState& run, const Timeline& timeline)
    : metrics_(std::filesystem::path(s.config.run.dir) / "metrics.jsonl", run.step),
      validations_(std::filesystem::path(s.config.run.dir) / "validation.jsonl", run.step),
      events_every_(s.config.log.tensorboard_every),
      evaluated_step_(run.valid_step) {
  const auto shares = std::filesystem::path(s.config.run.dir) / "shares.jsonl";
  std::error_code ignored;
  if (s.config.train.balance != "even" && s.world.size() > 1)
    shares_.emplace(shares, run.step);
  else
    std::filesystem::remove(shares, ignored);  // of an earlier launch with a load balancer
  if (s.config.log.tensorboard)
    events_ = std::make_unique<EventFile>(std::filesystem::path(s.config.run.dir) / "tensorboard", run.step + 1);
  if (!s.config.log.prometheus.empty()) status_ = std::make_unique<PrometheusFile>(s, run, timeline);
}

void RunLogger::step(const StepMetrics& m) {
  metrics_.write(m);
  if (events_ && m.step % events_every_ == 0) {
    const auto ms = [&](Phase p) { return m.phase_seconds[std::size_t(p)] * 1e3; };
    const std::array scalars{
        Scalar{"train/loss", m.loss},
        Scalar{"train/learning_rate", m.lr},
        Scalar{"train/grad_norm", m.grad_norm},
        Scalar{"train/loss_scale", m.loss_scale},
        Scalar{"speed/samples_per_second", m.samples_per_second},
        Scalar{"speed/step_ms", m.seconds * 1e3},
        Scalar{"phase_ms/data_wait", ms(Phase::data_wait)},
        Scalar{"phase_ms/copy", ms(Phase::copy)},
        Scalar{"phase_ms/forward", ms(Phase::forward)},
        Scalar{"phase_ms/backward", ms(Phase::backward)},
        Scalar{"phase_ms/communication", ms(Phase::communication)},
        Scalar{"phase_ms/optimizer", ms(Phase::optimizer)},
        Scalar{"phase_ms/other", ms(Phase::other)},
    };
    events_->add(m.step, unix_time(), scalars);
    if (m.speed_of_light > 0) {
      const Scalar light{"speed/speed_of_light", m.speed_of_light};
      events_->add(m.step, unix_time(), {&light, 1});
    }
    std::vector<std::string> tags;
    std::vector<Scalar> losses;
    for (const std::string& name : m.loss_names) tags.push_back("train/loss." + name);
    for (std::size_t i = 0; i < tags.size(); ++i) losses.push_back({tags[i], m.losses[i]});
    if (!losses.empty()) events_->add(m.step, unix_time(), losses);
  }
  if (status_) status_->step(m);
}

void RunLogger::shares(LoadBalancer& balance) {
  for (const LoadBalancer::Line& line : balance.take_lines())
    if (shares_) shares_->write(line.step, line.text);
}

void RunLogger::evaluation(const RunState& run, const Evaluation& e) {
  ValidationMetrics m{run.step, run.epoch, run.samples, e.loss, e.labels, e.top1, e.top5};
  for (const auto& [metric, value] : e.metrics) m.others.push_back({traits_of(metric).name, value});
  for (const auto& [name, value] : e.values_of_losses()) m.others.push_back({name, value});
  validations_.write(m);
  if (events_ && run.step > evaluated_step_) {  // a finished run that is launched again evaluates again
    std::vector<Scalar> scalars{{"valid/loss", e.loss}};
    if (e.labels) scalars.push_back({"valid/top1", e.top1});
    if (e.labels && std::isfinite(e.top5)) scalars.push_back({"valid/top5", e.top5});
    std::list<std::string> tags;
    for (const auto& [name, value] : m.others) scalars.push_back({tags.emplace_back("valid/" + name), value});
    events_->add(run.step, unix_time(), scalars);
    events_->flush();
    evaluated_step_ = run.step;
  }
  if (status_) status_->evaluation(run);
}

void RunLogger::before_checkpoint() {
  metrics_.sync();
  validations_.sync();
  if (shares_) shares_->sync();
  if (events_) events_->sync();
}

void RunLogger::checkpoint(std::int64_t step) {
  if (status_) status_->checkpoint(step);
}

void RunLogger::ended(Exit code) {
  if (events_) events_->flush();
  if (status_) status_->ended(code);
}

}  // namespace millrace
