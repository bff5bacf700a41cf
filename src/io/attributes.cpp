// Attributes of groups and data sets.
#include "io/check.hpp"
#include "io/file.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

std::string place(const std::string& path, const std::string& object, const std::string& key) {
  return path + ":" + absolute(object) + "@" + key;
}

void write(hid_t file, const std::string& at, const std::string& object, const std::string& key, hid_t type,
           hid_t space, const void* value) {
  const Handle owner(MR_H5(at, H5Oopen(file, absolute(object).c_str(), H5P_DEFAULT)), H5Oclose);
  if (MR_H5(at, H5Aexists(owner, key.c_str())) > 0) MR_H5(at, H5Adelete(owner, key.c_str()));
  const Handle attribute(MR_H5(at, H5Acreate2(owner, key.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT)), H5Aclose);
  MR_H5(at, H5Awrite(attribute, type, value));
}

struct Attribute {
  Handle id, type;
  hssize_t count = 0;
};

// nullopt if the object or the attribute does not exist.
std::optional<Attribute> find(hid_t file, const std::string& at, const std::string& object, const std::string& key) {
  const Handle owner(H5Oopen(file, absolute(object).c_str(), H5P_DEFAULT), H5Oclose);
  const bool there = owner && H5Aexists(owner, key.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  if (!there) return std::nullopt;
  Attribute a;
  a.id = Handle(MR_H5(at, H5Aopen(owner, key.c_str(), H5P_DEFAULT)), H5Aclose);
  a.type = Handle(MR_H5(at, H5Aget_type(a.id)), H5Tclose);
  const Handle space(MR_H5(at, H5Aget_space(a.id)), H5Sclose);
  a.count = MR_H5(at, H5Sget_simple_extent_npoints(space));
  return a;
}

std::string read_string(const Attribute& a, const std::string& at) {
  if (H5Tis_variable_str(a.type) > 0) {
    const Handle memory(MR_H5(at, H5Tcopy(H5T_C_S1)), H5Tclose);
    MR_H5(at, H5Tset_size(memory, H5T_VARIABLE));
    MR_H5(at, H5Tset_cset(memory, H5Tget_cset(a.type)));
    char* text = nullptr;
    MR_H5(at, H5Aread(a.id, memory, &text));
    std::string value = text ? text : "";
    H5free_memory(text);
    return value;
  }
  std::string value(H5Tget_size(a.type), '\0');
  const H5T_str_t padding = H5Tget_strpad(a.type);
  MR_H5(at, H5Aread(a.id, a.type, value.data()));
  if (padding == H5T_STR_SPACEPAD)
    value.erase(value.find_last_not_of(' ') + 1);
  else if (const auto end = value.find('\0'); end != value.npos)
    value.resize(end);
  return value;
}

}  // namespace

void File::set(const std::string& object, const std::string& key, const std::string& value) {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string at = place(impl_->path, object, key);
  const Handle type(MR_H5(at, H5Tcopy(H5T_C_S1)), H5Tclose);
  MR_H5(at, H5Tset_size(type, value.size() + 1));
  MR_H5(at, H5Tset_cset(type, H5T_CSET_UTF8));
  const Handle space(MR_H5(at, H5Screate(H5S_SCALAR)), H5Sclose);
  write(impl_->id(), at, object, key, type, space, value.c_str());
}

void File::set(const std::string& object, const std::string& key, double value) {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string at = place(impl_->path, object, key);
  const Handle space(MR_H5(at, H5Screate(H5S_SCALAR)), H5Sclose);
  write(impl_->id(), at, object, key, H5T_NATIVE_DOUBLE, space, &value);
}

void File::set(const std::string& object, const std::string& key, std::int64_t value) {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string at = place(impl_->path, object, key);
  const Handle space(MR_H5(at, H5Screate(H5S_SCALAR)), H5Sclose);
  write(impl_->id(), at, object, key, H5T_NATIVE_INT64, space, &value);
}

void File::set(const std::string& object, const std::string& key, const std::vector<double>& values) {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string at = place(impl_->path, object, key);
  const hsize_t count = values.size();
  const Handle space(count ? MR_H5(at, H5Screate_simple(1, &count, nullptr)) : MR_H5(at, H5Screate(H5S_NULL)),
                     H5Sclose);
  const double unused = 0;
  write(impl_->id(), at, object, key, H5T_NATIVE_DOUBLE, space, count ? values.data() : &unused);
}

std::optional<std::string> File::get_string(const std::string& object, const std::string& key) const {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string at = place(impl_->path, object, key);
  const auto a = find(impl_->id(), at, object, key);
  if (!a || H5Tget_class(a->type) != H5T_STRING || a->count != 1) return std::nullopt;
  return read_string(*a, at);
}

std::optional<std::vector<double>> File::get_numbers(const std::string& object, const std::string& key) const {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string at = place(impl_->path, object, key);
  const auto a = find(impl_->id(), at, object, key);
  if (!a || (H5Tget_class(a->type) != H5T_INTEGER && H5Tget_class(a->type) != H5T_FLOAT)) return std::nullopt;
  std::vector<double> values(std::size_t(a->count));
  if (!values.empty()) MR_H5(at, H5Aread(a->id, H5T_NATIVE_DOUBLE, values.data()));
  return values;
}

std::optional<std::int64_t> File::get_int(const std::string& object, const std::string& key) const {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string at = place(impl_->path, object, key);
  const auto a = find(impl_->id(), at, object, key);
  if (!a || H5Tget_class(a->type) != H5T_INTEGER || a->count != 1) return std::nullopt;
  std::int64_t value = 0;
  MR_H5(at, H5Aread(a->id, H5T_NATIVE_INT64, &value));
  return value;
}

}  // namespace millrace::io
