// Describes the data sets of a file: names, shapes, types, layouts.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "io/check.hpp"
#include "io/codec.hpp"
#include "io/external_storage.hpp"
#include "io/file.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

#if H5_VERSION_GE(1, 12, 0)
using ObjectInfo = H5O_info1_t;
#else
using ObjectInfo = H5O_info_t;
#endif

herr_t collect_dataset(hid_t, const char* name, const ObjectInfo* info, void* client) {
  if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(client)->push_back(absolute(name));
  return 0;
}

std::string filter_name(H5Z_filter_t id, const char* stored) {
  switch (id) {
    case H5Z_FILTER_DEFLATE:
      return "gzip";
    case H5Z_FILTER_SHUFFLE:
      return "shuffle";
    case H5Z_FILTER_FLETCHER32:
      return "fletcher32";
    case H5Z_FILTER_SZIP:
      return "szip";
    case H5Z_FILTER_NBIT:
      return "nbit";
    case H5Z_FILTER_SCALEOFFSET:
      return "scaleoffset";
    case 307:
      return "bzip2";
    case 32000:
      return "lzf";
    case 32001:
      return "blosc";
    case 32004:
      return "lz4";
    case 32008:
      return "bitshuffle";
    case 32013:
      return "zfp";
    case 32015:
      return "zstd";
    default:
      return stored[0] ? fmt::format("{} ({})", stored, id) : fmt::format("filter {}", id);
  }
}

bool can_decode(const FilterSpec& filter) {
  const H5Z_filter_t id = filter.id;
  if (is_registered(id) && missing_package(filter)) return false;
  unsigned config = 0;
  const bool can =
      H5Zfilter_avail(id) > 0 && H5Zget_filter_info(id, &config) >= 0 && (config & H5Z_FILTER_CONFIG_DECODE_ENABLED);
  H5Eclear2(H5E_DEFAULT);
  return can;
}

std::string advice_for(const FilterSpec& filter) {
  const char* package = missing_package(filter);
  return fmt::format("{}install the plugin and set HDF5_PLUGIN_PATH, or repack with gzip or without compression",
                     package ? fmt::format("install {} and build again, or ", package) : "");
}

std::string unsupported_reason_of(const OpenDataset& dataset, hid_t dcpl, const std::string& where, bool converting) {
  if (!dataset.element.unsupported_reason.empty()) return dataset.element.unsupported_reason;
  if (H5Aexists(dataset.id, "MATLAB_empty") > 0)
    return "it is an empty MATLAB array, whose extents are stored in place of values";
  if (dataset.shape.empty()) return "it is a single value without extents: there are no rows";
  const H5D_layout_t layout = H5Pget_layout(dcpl);
  if (layout == H5D_VIRTUAL && !converting)
    return "it is a virtual data set (slow, and past the limit of open files its values silently become the fill "
           "value). name its source files instead, or pack it";
  if (layout == H5D_CONTIGUOUS && H5Pget_external_count(dcpl) > 0 && !converting)
    return "its values lie in external files. pack it into one file";
  if (layout == H5D_CHUNKED)
    for (const FilterSpec& filter : filters_of(dcpl, where))
      if (!can_decode(filter))
        return fmt::format(
            "it is compressed with {} (HDF5 filter {}), which neither this program nor its HDF5 library can decode. {}",
            filter.name, filter.id, advice_for(filter));
  return "";
}

// HDF5 reads rows of a chunked data set from whole chunks. Its cache holds all chunks of the same rows, so that rows
// which are read in order decode every chunk once.
std::size_t cache_bytes(hid_t dcpl, const OpenDataset& dataset) {
  constexpr std::size_t min_bytes = 1u << 20, max_bytes = 256u << 20;
  std::vector<hsize_t> chunk(dataset.shape.size());
  if (H5Pget_chunk(dcpl, int(chunk.size()), chunk.data()) < 0) return min_bytes;
  double bytes = double(H5Tget_size(dataset.type)) * double(chunk[0]);
  for (std::size_t d = 1; d < chunk.size(); ++d)
    bytes *= double((dataset.shape[d] + chunk[d] - 1) / chunk[d] * chunk[d]);
  return bytes < double(min_bytes) ? min_bytes : bytes > double(max_bytes) ? max_bytes : std::size_t(bytes);
}

// DatasetInfo::global_heap_base: set if elements are byte sequences in heaps with 8-byte addresses.
std::optional<std::uint64_t> heap_base_of(hid_t file, hid_t type, const std::string& path) {
  if (H5Tget_class(type) != H5T_VLEN) return std::nullopt;
  const Handle element(MR_H5(path, H5Tget_super(type)), H5Tclose),
      fcpl(MR_H5(path, H5Fget_create_plist(file)), H5Pclose);
  std::size_t address_bytes = 0, size_bytes = 0;
  MR_H5(path, H5Pget_sizes(fcpl, &address_bytes, &size_bytes));
  if (H5Tget_class(element) != H5T_INTEGER || H5Tget_size(element) != 1 || address_bytes != 8 || size_bytes != 8)
    return std::nullopt;
  return user_block_of(file, path);
}

}  // namespace

std::vector<FilterSpec> filters_of(hid_t dcpl, const std::string& where) {
  std::vector<FilterSpec> filters;
  const int count = MR_H5(where, H5Pget_nfilters(dcpl));
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0;
    std::vector<unsigned> values(64);
    std::size_t value_count = values.size();
    char stored[64] = "";
    const H5Z_filter_t id = MR_H5(
        where, H5Pget_filter2(dcpl, unsigned(i), &flags, &value_count, values.data(), sizeof stored, stored, &config));
    stored[sizeof stored - 1] = 0;
    values.resize(std::min(value_count, values.size()));
    filters.push_back({id, filter_name(id, stored), std::move(values)});
  }
  return filters;
}

std::string absolute(const std::string& name) { return name.starts_with('/') ? name : "/" + name; }

std::size_t OpenDataset::row_elements() const {
  std::size_t count = 1;
  for (std::size_t d = 1; d < shape.size(); ++d) count *= std::size_t(shape[d]);
  return count;
}

OpenDataset& File::Impl::cache_dataset(const std::string& name, Handle id) {
  const std::string at = where(name);
  OpenDataset d;
  d.name = name;
  d.id = std::move(id);
  d.type = Handle(MR_H5(at, H5Dget_type(d.id)), H5Tclose);
  d.space = Handle(MR_H5(at, H5Dget_space(d.id)), H5Sclose);
  d.shape.resize(std::size_t(MR_H5(at, H5Sget_simple_extent_ndims(d.space))));
  if (!d.shape.empty()) MR_H5(at, H5Sget_simple_extent_dims(d.space, d.shape.data(), nullptr));
  d.element = describe_type(d.type, converting);
  const Handle dcpl(MR_H5(at, H5Dget_create_plist(d.id)), H5Pclose);
  d.unsupported_reason = unsupported_reason_of(d, dcpl, at, converting);
  const H5D_layout_t layout = H5Pget_layout(dcpl);
  bool relative_to_file = false;
  if (d.unsupported_reason.empty() && layout == H5D_VIRTUAL) d.unsupported_reason = virtual_dataset_problem(dcpl, path);
  if (d.unsupported_reason.empty() && layout == H5D_CONTIGUOUS && H5Pget_external_count(dcpl) > 0)
    d.unsupported_reason = external_storage_problem(dcpl, path, relative_to_file);
  const bool chunked = layout == H5D_CHUNKED && !writable;
  if (d.unsupported_reason.empty() && (chunked || relative_to_file)) {
    const Handle dapl(MR_H5(at, H5Pcreate(H5P_DATASET_ACCESS)), H5Pclose);
    if (chunked) MR_H5(at, H5Pset_chunk_cache(dapl, 10007, cache_bytes(dcpl, d), H5D_CHUNK_CACHE_W0_DEFAULT));
    if (relative_to_file) MR_H5(at, H5Pset_efile_prefix(dapl, "${ORIGIN}"));
    d.id.reset();  // HDF5 applies both properties only when the data set is opened for the first time
    d.id = Handle(MR_H5(at, H5Dopen2(file, name.c_str(), dapl)), H5Dclose);
  }
  return open.insert_or_assign(name, std::move(d)).first->second;
}

OpenDataset& File::Impl::dataset(const std::string& given) {
  const std::string name = absolute(given);
  if (const auto found = open.find(name); found != open.end()) return found->second;
  const hid_t opened = H5Dopen2(id(), name.c_str(), H5P_DEFAULT);
  if (opened < 0) {
    const std::string reason = error_stack();
    fail(Exit::data, "{} has no data set {} ({})", path, name, reason);
  }
  return cache_dataset(name, Handle(opened, H5Dclose));
}

std::vector<std::string> File::datasets() const {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  std::vector<std::string> names;
  MR_H5(impl_->path, H5Ovisit2(impl_->id(), H5_INDEX_NAME, H5_ITER_INC, collect_dataset, &names, H5O_INFO_BASIC));
  return names;
}

bool File::has(const std::string& name) const {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string full = absolute(name);
  const hid_t object = H5Oopen(impl_->id(), full.c_str(), H5P_DEFAULT);
  if (object < 0) {
    const std::string reason = error_stack();
    const bool listed = H5Lexists(impl_->id(), full.c_str(), H5P_DEFAULT) > 0;
    H5Eclear2(H5E_DEFAULT);
    if (!listed) return false;
    const bool newer = reason.find("version") != std::string::npos;
    fail(Exit::data, "{} cannot be opened ({}){}", impl_->where(full), reason,
         newer ? ". a newer HDF5 wrote it. write it without libver='latest', or pack it on a machine with that HDF5"
               : "");
  }
  const Handle owner(object, H5Oclose);
  return H5Iget_type(object) == H5I_DATASET;
}

// The name of the file that an HDF5 object lies in.
std::string file_of(hid_t object) {
  const ssize_t length = H5Fget_name(object, nullptr, 0);
  std::string name(std::size_t(std::max<ssize_t>(0, length)), '\0');
  if (length > 0) H5Fget_name(object, name.data(), name.size() + 1);
  return name;
}

DatasetInfo File::info(const std::string& given) const {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const OpenDataset& dataset = impl_->dataset(given);
  DatasetInfo info;
  info.name = absolute(given);
  const std::string at = impl_->where(info.name);
  info.dtype = dataset.element.dtype;
  info.big_endian = dataset.element.big_endian;
  info.shape.assign(dataset.shape.begin(), dataset.shape.end());
  info.unsupported_reason = dataset.unsupported_reason;
  std::error_code unknown;
  if (const std::string holder = file_of(dataset.id);
      holder != file_of(impl_->id()) && !std::filesystem::equivalent(holder, impl_->path, unknown))
    info.external_link_file = holder;
  info.uint32_as_int32 =
      dataset.element.uint32_as_int32 && info.unsupported_reason == dataset.element.unsupported_reason;
  info.global_heap_base = heap_base_of(impl_->id(), dataset.type, at);
  const Handle dcpl(MR_H5(at, H5Dget_create_plist(dataset.id)), H5Pclose);
  info.chunked = H5Pget_layout(dcpl) == H5D_CHUNKED;
  if (info.chunked) {
    std::vector<hsize_t> chunk(dataset.shape.size());
    MR_H5(at, H5Pget_chunk(dcpl, int(chunk.size()), chunk.data()));
    info.chunk.assign(chunk.begin(), chunk.end());
    for (FilterSpec& filter : filters_of(dcpl, at)) info.filters.push_back(std::move(filter.name));
  } else if (H5Pget_layout(dcpl) == H5D_CONTIGUOUS &&
             (info.unsupported_reason.empty() || info.global_heap_base || info.uint32_as_int32)) {
    const haddr_t offset = H5Dget_offset(dataset.id);  // counts from the file's first byte, user block included
    if (offset != HADDR_UNDEF) info.offset = offset;
    H5Eclear2(H5E_DEFAULT);
  }
  return info;
}

}  // namespace millrace::io
