#include <set>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/io/hdf5.hpp"
#include "train/checkpoint/checkpoint_file.hpp"
#include "train/checkpoint/weight_comparison.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {
namespace {

class CheckpointWeights : public WeightSource {
 public:
  CheckpointWeights(const std::filesystem::path& path, const WeightTarget& target)
      : path_(path), graph_(target.graph), file_(io::File::open(path)) {
    const CheckpointModel model = read_checkpoint_model(path);  // refuses what is damaged or no checkpoint
    for (const std::string& name : file_.datasets())
      if (name.starts_with("/ema/")) group_ = "/ema/";
    WeightComparison differences(target);
    std::set<std::string> known;
    for (const Parameter& p : graph_.parameters)
      parameters_.push_back(compare(differences, p.name, group_ + p.name, p.shape, known));
    for (const RunningStats& s : graph_.stats) {
      compare(differences, s.name + ".variance", "/running/" + s.name + ".variance", {s.channels}, known);
      statistics_.push_back(
          compare(differences, s.name + ".mean", "/running/" + s.name + ".mean", {s.channels}, known));
    }
    for (const std::string& name : file_.datasets())
      for (const std::string& group : {group_, std::string("/running/")})
        if (name.starts_with(group) && !known.contains(name) && !differences.skips(name.substr(group.size())))
          differences.unknown(name.substr(group.size()));
    differences.require_equal(path);
    if (model.record) require_same_settings(path, *model.record, target);
  }

  void read_parameter(int index, std::span<float> out) override {
    read(group_ + graph_.parameters[std::size_t(index)].name, out);
  }
  void read_statistics(int index, std::span<float> out) override {
    const std::string name = "/running/" + graph_.stats[std::size_t(index)].name;
    read(name + ".mean", out.first(out.size() / 2));
    read(name + ".variance", out.last(out.size() / 2));
  }

 private:
  // Whether the file holds the tensor, and the caller wants it.
  bool compare(WeightComparison& differences, const std::string& name, const std::string& stored, const Shape& shape,
               std::set<std::string>& known) {
    known.insert(stored);
    if (differences.skips(name)) return false;
    if (!file_.has(stored))
      differences.missing(name);
    else if (const auto found = file_.info(stored).shape; found != shape.extents())
      differences.other_shape(name, found, shape.extents());
    return true;
  }

  void read(const std::string& name, std::span<float> out) {
    file_.read_rows(name, 0, file_.info(name).shape.at(0), DType::f32, out.data());
    if (std::int64_t(crc32(out.data(), out.size_bytes())) != file_.get_int(name, "crc32"))
      fail(Exit::data, "{}: the checksum of {} is wrong", path_.string(), name.substr(1));
  }

  std::filesystem::path path_;
  Graph graph_;
  io::File file_;
  std::string group_ = "/parameters/";
};

}  // namespace

std::unique_ptr<WeightSource> open_checkpoint_weights(const std::filesystem::path& path, const WeightTarget& target) {
  return std::make_unique<CheckpointWeights>(path, target);
}

}  // namespace millrace
