// A folder of images by class: FOLDER/CLASS/*.png, *.jpg, *.jpeg. Classes are numbered in the order of their names.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "image.hpp"
#include "importers.hpp"
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
  if (problem) fail(Exit::data, "cannot list ", folder.string(), " (", problem.message(), ")");
  for (const auto& entry : entries)
    if (!entry.path().filename().string().starts_with('.')) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

class Images : public Importer {
 public:
  explicit Images(const ImportOptions& o) : o_(o) {
    if (!o.y.empty()) fail(Exit::config, "the folders of ", o.x[0], " are the classes. leave --y away");
    if (o.layout == Layout::channels_first)
      fail(Exit::config, "images are packed with their channels last. leave --layout away");
    if (o.x.size() != 1) fail(Exit::config, "one folder of classes at a time. give --x FOLDER");
    if (o.resize < 0 || o.crop < 0 || (o.resize > 0 && o.crop > o.resize))
      fail(Exit::config, "a crop of ", o.crop, " pixels does not fit into images resized to ", o.resize);
    for (const fs::path& folder : sorted(o.x[0])) {
      if (!fs::is_directory(folder)) {
        ++left_out_;
        continue;
      }
      const std::size_t before = files_.size();
      for (const fs::path& file : sorted(folder)) {
        if (named_as_image(file) && fs::is_regular_file(file))
          files_.push_back({file.string(), std::int32_t(classes_.size())});
        else
          ++left_out_;
      }
      if (files_.size() == before)
        fail(Exit::data, folder.string(), " holds no .png, .jpg or .jpeg. remove the folder");
      classes_.push_back(folder.filename().string());
      if (classes_.back().find('\n') != std::string::npos)
        fail(Exit::data, "a class has a line break in its name: ", folder.string(), ". rename the folder");
    }
    if (files_.empty())
      fail(Exit::data, o.x[0], " holds no folders of images. one folder a class: ", o.x[0], "/cat/1.jpg");
    const Image first = decode_image(read_file(files_[0].path), files_[0].path);
    const std::int64_t side = o.crop > 0 ? o.crop : o.resize;
    height_ = side > 0 ? side : first.height, width_ = side > 0 ? side : first.width;
  }
  std::int64_t rows() const override { return std::int64_t(files_.size()); }
  Shape sample() const override { return Shape{height_, width_, o_.grey ? 1 : 3}; }
  bool channels_first() const override { return false; }
  DType x_dtype() const override { return DType::u8; }
  DType y_dtype() const override { return DType::i32; }
  Shape target() const override { return {}; }
  bool any_order() const override { return true; }
  std::vector<std::string> class_names() const override { return classes_; }
  void read(std::int64_t begin, std::int64_t count, void* x, void* y) const override {
    const std::size_t bytes = std::size_t(sample().count());
    for (std::int64_t r = 0; r < count; ++r) {
      const File& file = files_[std::size_t(begin + r)];
      const Image image = prepared(file.path);
      std::copy(image.pixels.begin(), image.pixels.end(), static_cast<std::uint8_t*>(x) + std::size_t(r) * bytes);
      static_cast<std::int32_t*>(y)[r] = file.label;
    }
  }
  std::string describe() const override {
    std::string names;
    for (std::size_t c = 0; c < classes_.size() && c < 5; ++c) names += (c ? ", " : "") + classes_[c];
    return cat(o_.x[0], ": ", rows(), " images of ", sample().str(), " in ", classes_.size(), " classes (", names,
               classes_.size() > 5 ? ", ..." : "", ")",
               left_out_ > 0 ? cat(", ", left_out_, " other files left out") : "");
  }

 private:
  struct File {
    std::string path;
    std::int32_t label;
  };

  Image prepared(const std::string& path) const {
    Image image = decode_image(read_file(path), path);
    if (o_.grey) image = to_grey(image);
    const std::int64_t side = std::min(image.height, image.width);
    if (o_.resize > 0 && side != o_.resize)
      image = resized(image, std::max(o_.resize, image.height * o_.resize / side),
                      std::max(o_.resize, image.width * o_.resize / side));
    if (image.height == height_ && image.width == width_) return image;
    if (o_.resize == 0 && o_.crop == 0)
      fail(Exit::data, path, " is of ", image.height, "x", image.width, " pixels, the first image of ", height_, "x",
           width_, ". give --resize N, the short side of all of them");
    if (image.height < height_ || image.width < width_)
      fail(Exit::data, path, " is of ", image.height, "x", image.width, " pixels, smaller than --crop ", o_.crop,
           ". give --resize too");
    return centre_cropped(image, height_, width_);
  }

  const ImportOptions o_;
  std::vector<File> files_;
  std::vector<std::string> classes_;
  std::int64_t height_ = 0, width_ = 0, left_out_ = 0;
};

}  // namespace

std::unique_ptr<Importer> import_images(const ImportOptions& o) { return std::make_unique<Images>(o); }

}  // namespace millrace
