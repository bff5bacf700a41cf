// Creates data sets and stores encoded chunks.
#include <algorithm>

#include "io/check.hpp"
#include "io/file.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

// Creates the parent groups too. Times are not stored, because the clocks of the ranks differ.
Handle make(hid_t file, const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, hid_t dcpl,
            const std::string& at) {
  MR_CHECK(!shape.empty(), "{}", at);
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Handle space(MR_H5(at, H5Screate_simple(int(extents.size()), extents.data(), nullptr)), H5Sclose);
  const Handle lcpl(MR_H5(at, H5Pcreate(H5P_LINK_CREATE)), H5Pclose);
  MR_H5(at, H5Pset_create_intermediate_group(lcpl, 1));
  MR_H5(at, H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
  MR_H5(at, H5Pset_obj_track_times(dcpl, false));
  return {MR_H5(at, H5Dcreate2(file, name.c_str(), native_type(dtype), space, lcpl, dcpl, H5P_DEFAULT)), H5Dclose};
}

}  // namespace

void File::create_dataset(const std::string& given, DType dtype, const std::vector<std::int64_t>& shape) {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string name = absolute(given), at = impl_->where(name);
  const Handle dcpl(MR_H5(at, H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
  MR_H5(at, H5Pset_layout(dcpl, H5D_CONTIGUOUS));
  MR_H5(at, H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
  impl_->cache_dataset(name, make(impl_->id(), name, dtype, shape, dcpl, at));
}

void File::create_chunked(const std::string& given, DType dtype, const std::vector<std::int64_t>& shape,
                          std::int64_t chunk_rows, const FilterSpec& filter) {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const std::string name = absolute(given), at = impl_->where(name);
  MR_CHECK(!impl_->parallel() && !shape.empty() && chunk_rows >= 1, "{}", at);
  const Handle dcpl(MR_H5(at, H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
  std::vector<hsize_t> chunk(shape.begin(), shape.end());
  chunk[0] = hsize_t(std::min(chunk_rows, shape[0]));
  MR_H5(at, H5Pset_chunk(dcpl, int(chunk.size()), chunk.data()));
  MR_H5(at, H5Pset_filter(dcpl, filter.id, H5Z_FLAG_MANDATORY, filter.values.size(), filter.values.data()));
  impl_->cache_dataset(name, make(impl_->id(), name, dtype, shape, dcpl, at));
}

void File::write_chunk(const std::string& given, std::int64_t number, const ByteBuffer& stored) {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  const OpenDataset& dataset = impl_->dataset(given);
  const std::string at = impl_->where(absolute(given));
  const Handle dcpl(MR_H5(at, H5Dget_create_plist(dataset.id)), H5Pclose);
  std::vector<hsize_t> chunk(dataset.shape.size()), first(dataset.shape.size(), 0);
  MR_H5(at, H5Pget_chunk(dcpl, int(chunk.size()), chunk.data()));
  first[0] = hsize_t(number) * chunk[0];
  MR_H5(at, H5Dwrite_chunk(dataset.id, H5P_DEFAULT, 0, first.data(), stored.size(), stored.data()));
  impl_->bytes_written += stored.size();
}

}  // namespace millrace::io
