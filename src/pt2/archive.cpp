#include "pt2/archive.hpp"

#include <zip.h>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/printable.hpp"

namespace millrace::pt2 {
namespace {

std::string text_of(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

bool is_relative(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != name.npos || name.find(':') != name.npos) return false;
  return ("/" + name + "/").find("/../") == std::string::npos;
}

}  // namespace

void Archive::Close::operator()(zip* archive) const { zip_discard(archive); }

Archive::Archive(const std::filesystem::path& path) : path_(path.string()) {
  require_regular_file(path);
  std::error_code none;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, none);
  int code = 0;
  zip_.reset(zip_open(path_.c_str(), ZIP_RDONLY, &code));
  if (!zip_)
    fail(Exit::data, "{} cannot be read as an exported network ({}). write it with torch.export.save", path_,
         text_of(code));
  const zip_int64_t entries = zip_get_num_entries(zip_.get(), 0);
  for (zip_int64_t i = 0; i < entries; ++i) add(std::uint64_t(i), file_bytes);
}

void Archive::add(std::uint64_t index, std::uint64_t file_bytes) {
  zip_stat_t info;
  zip_stat_init(&info);
  constexpr zip_uint64_t needed = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
  if (zip_stat_index(zip_.get(), index, 0, &info) != 0 || (info.valid & needed) != needed)
    fail(Exit::data, "{} is damaged: record {} has no description. export the network again", path_, index);
  const std::string name = info.name;
  const auto refuse = [&](const char* why) {
    fail(Exit::data, "{} is damaged: the record '{}' {}. export the network again", path_, printable(name), why);
  };
  if (!is_relative(name)) refuse("has a name that is no relative path");
  if (info.comp_method != ZIP_CM_STORE || info.comp_size != info.size) refuse("is compressed");
  if ((info.valid & ZIP_STAT_ENCRYPTION_METHOD) && info.encryption_method != ZIP_EM_NONE) refuse("is encrypted");
  if (info.size > file_bytes || bytes_ + info.size > file_bytes) refuse("is larger than the file");
  bytes_ += info.size;
  const auto slash = name.find('/');
  if (slash == name.npos) refuse("lies in no folder");
  if (records_.empty()) folder_ = name.substr(0, slash + 1);
  if (!name.starts_with(folder_)) refuse("lies in another folder than the first one");
  if (!records_.emplace(name.substr(folder_.size()), Record{index, info.size}).second) refuse("occurs twice");
}

const Archive::Record& Archive::find(const std::string& record) const {
  const auto found = records_.find(record);
  if (found == records_.end())
    fail(Exit::data, "{} is damaged: it has no record '{}'. export the network again", path_, printable(record));
  return found->second;
}

std::string Archive::read(const std::string& record, std::uint64_t most) const {
  const Record& r = find(record);
  if (r.size > most)
    fail(Exit::data, "{}: the record '{}' has {} bytes (at most {} are possible)", path_, printable(record), r.size,
         most);
  if (r.content) return *r.content;
  if (!zip_)
    fail(Exit::data, "{}: the record '{}' is in the file alone, and not in the checkpoint. restore the file", path_,
         printable(record));
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(zip_fopen_index(zip_.get(), r.index, 0), zip_fclose);
  std::string out(std::size_t(r.size), '\0');
  char past_the_end = 0;  // reading it compares the checksum
  if (!file || zip_fread(file.get(), out.data(), out.size()) != zip_int64_t(out.size()) ||
      zip_fread(file.get(), &past_the_end, 1) != 0)
    fail(Exit::data, "{} is damaged: the record '{}' cannot be read ({}). export the network again", path_,
         printable(record), file ? zip_file_strerror(file.get()) : zip_strerror(zip_.get()));
  return out;
}

}  // namespace millrace::pt2
