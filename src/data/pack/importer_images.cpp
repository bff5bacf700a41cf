// Imports a folder of images by class: FOLDER/CLASS/*.png, *.jpg, *.jpeg. Classes are numbered in the order of names.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/pack/image_samples.hpp"
#include "data/pack/importers.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

bool named_as_image(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

std::vector<fs::path> sorted(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code problem;
  fs::directory_iterator entries(folder, problem);
  if (problem) fail(Exit::data, "cannot list {} ({})", folder.string(), problem.message());
  for (const auto& entry : entries)
    if (!entry.path().filename().string().starts_with('.')) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

class Images : public Importer {
 public:
  explicit Images(const ImportOptions& o) : o_(o) {
    if (!o.y.empty()) fail(Exit::config, "the folders of {} are the classes. remove --y", o.x[0]);
    if (o.x.size() != 1) fail(Exit::config, "only one folder of classes can be packed at a time. give --x FOLDER");
    images_ = list_images(o.x[0]);
    const std::string& first = images_.files[0].path;
    samples_.emplace(o, read_file(first), first);
  }
  std::int64_t rows() const override { return std::int64_t(images_.files.size()); }
  Shape sample() const override { return samples_->sample(); }
  bool channels_first() const override { return false; }
  DType x_dtype() const override { return DType::u8; }
  DType y_dtype() const override { return DType::i32; }
  Shape target() const override { return {}; }
  bool random_access() const override { return true; }
  std::vector<std::string> class_names() const override { return images_.classes; }
  void read(std::int64_t begin, std::int64_t count, void* x, void* y) const override {
    ImageSamples::Maker maker(*samples_);
    auto* to = static_cast<std::uint8_t*>(x);
    for (std::int64_t r = 0; r < count; ++r, to += sample().count()) {
      const auto& [path, label] = images_.files[std::size_t(begin + r)];
      maker.make(read_file(path), path, to);
      static_cast<std::int32_t*>(y)[r] = label;
    }
  }
  std::string describe() const override {
    std::string names;
    for (std::size_t c = 0; c < images_.classes.size() && c < 5; ++c) names += (c ? ", " : "") + images_.classes[c];
    return fmt::format("{}: {} images of {} in {} classes ({}{}){}", o_.x[0], rows(), sample().str(),
                       images_.classes.size(), names, images_.classes.size() > 5 ? ", ..." : "",
                       images_.ignored_files > 0 ? fmt::format(", {} other files ignored", images_.ignored_files) : "");
  }

 private:
  const ImportOptions o_;
  ImageFolder images_;
  std::optional<ImageSamples> samples_;
};

}  // namespace

ImageFolder list_images(const std::string& root) {
  ImageFolder out;
  for (const fs::path& folder : sorted(root)) {
    if (!fs::is_directory(folder)) {
      ++out.ignored_files;
      continue;
    }
    const std::size_t before = out.files.size();
    for (const fs::path& file : sorted(folder)) {
      if (named_as_image(file) && fs::is_regular_file(file))
        out.files.push_back({file.string(), std::int32_t(out.classes.size())});
      else
        ++out.ignored_files;
    }
    if (out.files.size() == before)
      fail(Exit::data, "{} holds no .png, .jpg or .jpeg. remove the folder", folder.string());
    out.classes.push_back(folder.filename().string());
    if (out.classes.back().find('\n') != std::string::npos)
      fail(Exit::data, "a class has a line break in its name: {}. rename the folder", folder.string());
  }
  if (out.files.empty())
    fail(Exit::data, "{} holds no folders of images. make one folder per class: {}/cat/1.jpg", root, root);
  return out;
}

std::unique_ptr<Importer> import_images(const ImportOptions& o) { return std::make_unique<Images>(o); }

}  // namespace millrace
