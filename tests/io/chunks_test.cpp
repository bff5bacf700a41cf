// Chunks are read at their addresses and decoded, and compared with the values that were written.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>

#include "files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/io/global_heap.hpp"
#include "millrace/io/hdf5.hpp"
#include "support/hdf5_filters.hpp"

namespace millrace::io {
namespace chunks_test {

using millrace::test::chunk_filters;
using millrace::test::ChunkFilter;
using millrace::test::write_filtered;
using test::decoded;
using test::TemporaryFolder;

const std::string version = library_version();  // initializes the room before this file calls HDF5

// Compressible values without a simple period.
std::string numbers(std::size_t bytes, std::uint64_t seed = 1) {
  std::string out(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) out[i] = char(philox(seed, i / 5, 0).v[0] % 7 + (i % 4 == 3 ? 60 : 0));
  return out;
}

TEST(Chunks, EveryFilterTypeAndFormatDecodesToTheWrittenValues) {
  const TemporaryFolder folder;
  // Partial chunks in two dimensions; 60 elements, which is not a multiple of 8.
  const std::vector<hsize_t> shape{23, 5, 7}, chunk{4, 5, 3};
  const auto kinds = chunk_filters();
  EXPECT_GE(kinds.size(), 9u);
  for (const ChunkFilter& packing : kinds)
    for (const hid_t type : {H5T_STD_U8LE, H5T_STD_I16BE, H5T_IEEE_F32LE, H5T_IEEE_F64BE})
      for (const bool new_format : {false, true}) {
        SCOPED_TRACE(packing.name + " of " + std::to_string(H5Tget_size(type)) + (new_format ? " latest" : ""));
        const std::string path = folder / "a.h5", values = numbers(23 * 5 * 7 * H5Tget_size(type));
        write_filtered(path, {{"x", type, shape, chunk, values}}, packing, new_format, new_format ? 1024 : 0);
        const File file = File::open(path);
        ASSERT_EQ(file.info("x").unsupported_reason, "");
        const ChunkedLayout layout = file.chunked_layout("x");
        ASSERT_EQ(unsupported_filter_reason(layout.filters), "");
        EXPECT_EQ(decoded(path, layout), values);
        if (H5Tget_order(type) == H5T_ORDER_BE) continue;
        std::string by_hdf5(values.size(), '?');  // read by HDF5 with the codecs registered there
        file.read_rows("x", 0, 23, file.info("x").dtype, by_hdf5.data());
        EXPECT_EQ(by_hdf5, values);
      }
}

TEST(Chunks, UnwrittenChunksHoldTheFillValueAndEdgesMayBeUnfiltered) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5", values = numbers(10 * 6 * 2);
  write_filtered(path, {{"x", H5T_STD_I16LE, {10, 6}, {4, 6}, values}},
                 {"",
                  [](hid_t p, unsigned) {
                    H5Pset_deflate(p, 1);
                    H5Pset_chunk_opts(p, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
                  }},
                 true);
  const ChunkedLayout edges = File::open(path).chunked_layout("x");
  EXPECT_TRUE(edges.partial_chunks_unfiltered);
  EXPECT_EQ(decoded(path, edges), values);

  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t shape[2] = {5, 3}, chunk[2] = {2, 2};
  const hid_t space = H5Screate_simple(2, shape, nullptr);
  const std::int32_t fill = 0x01020304;
  H5Pset_chunk(dcpl, 2, chunk);
  H5Pset_fill_value(dcpl, H5T_NATIVE_INT32, &fill);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Dclose(H5Dcreate2(file, "x", H5T_STD_I32BE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
  H5Sclose(space);
  H5Pclose(dcpl);
  H5Fclose(file);
  std::string filled;
  for (int i = 0; i < 15; ++i) filled += std::string("\1\2\3\4", 4);
  EXPECT_EQ(decoded(path, File::open(path).chunked_layout("x")), filled);
}

TEST(Chunks, TheFilterMaskOfAChunkIsApplied) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5", values = numbers(400);
  std::string shuffled(values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) shuffled[i % 4 * 100 + i / 4] = values[i];
  const hsize_t count = 100, first = 0;
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &count, nullptr);
  H5Pset_chunk(dcpl, 1, &count);
  H5Pset_shuffle(dcpl);
  H5Pset_deflate(dcpl, 1);
  const hid_t dataset = H5Dcreate2(file, "x", H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
  H5Dwrite_chunk(dataset, H5P_DEFAULT, 2, &first, shuffled.size(), shuffled.data());  // without gzip, the second filter
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(dcpl);
  H5Fclose(file);
  EXPECT_EQ(decoded(path, File::open(path).chunked_layout("x")), values);
}

// Every byte of a chunk is changed in turn, and the chunk is cut at every length. The result is an Error or other
// values, but never a crash. With fletcher32, every changed byte is an Error.
TEST(Chunks, DamagedChunksAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5", values = numbers(40 * 4);
  for (const ChunkFilter& packing : chunk_filters()) {
    SCOPED_TRACE(packing.name);
    write_filtered(path, {{"x", H5T_STD_I32LE, {40}, {40}, values}}, packing);
    const ChunkedLayout layout = File::open(path).chunked_layout("x");
    const auto stored = test::bytes_at(path, layout.chunks[0].offset, layout.chunks[0].bytes);
    ByteBuffer raw, out;
    const auto refused = [&](std::vector<char> bytes) {
      raw.resize_uninitialized(bytes.size());
      std::memcpy(raw.data(), bytes.data(), bytes.size());
      try {
        decode_chunk(layout, 0, raw, out);
        EXPECT_EQ(out.size(), values.size());
        return false;
      } catch (const Error& e) {
        EXPECT_EQ(int(e.code()), int(Exit::data)) << e.what();
        return true;
      }
    };
    ASSERT_FALSE(refused(stored));
    EXPECT_EQ(std::string(out.data(), out.size()), values);
    for (std::size_t i = 0; i < stored.size(); ++i)
      for (const char flip : {1, -128, -1}) {
        auto changed = stored;
        changed[i] = char(changed[i] ^ flip);
        const bool caught = refused(changed);
        EXPECT_TRUE(caught || !packing.name.ends_with("fletcher32")) << "byte " << i;
      }
    for (std::size_t length = 0; length < stored.size(); ++length) {
      const bool caught = refused({stored.begin(), stored.begin() + std::ptrdiff_t(length)});
      EXPECT_TRUE(caught || packing.name.ends_with("szip")) << "cut at " << length;
    }
  }
}

// The size in a damaged header may exceed the memory, and some libraries do not check their parameters (szip, found by
// tests/fuzz). With two filters, the size after the second is unknown.
TEST(Chunks, ImpossibleParametersAndSizesAreRefused) {
  const std::string zstd_of_an_exabyte("\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\0\0\x10", 13);
  const std::string blosc_of_2_gib("\2\1\0\1\xff\xff\xff\x7e\xff\xff\xff\x7e\x14\0\0\0\0\0\0\0", 20);
  const std::string szip("\0\0\0\x7f and a rest", 15);
  struct Damage {
    FilterSpec filter;
    std::string stored;
  };
  for (const auto& [filter, stored] :
       {Damage{{4, "szip", {0, 0, 8, 16}}, szip}, Damage{{4, "szip", {0, 8, 8, 16}}, szip},
        Damage{{32015, "zstd", {}}, zstd_of_an_exabyte}, Damage{{32001, "blosc", {}}, blosc_of_2_gib},
        Damage{{32000, "lzf", {0, 0, 0x7fffffff}}, "a"}}) {
    ChunkedLayout layout;
    layout.shape = layout.chunk = {64};
    layout.element_bytes = 1;
    layout.filters = {{1, "gzip", {}}, filter};
    layout.chunks.resize(1);
    if (!unsupported_filter_reason(layout.filters).empty()) continue;
    ByteBuffer raw, out;
    raw.resize_uninitialized(stored.size());
    std::memcpy(raw.data(), stored.data(), stored.size());
    try {
      decode_chunk(layout, 0, raw, out);
      ADD_FAILURE() << filter.name;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find(filter.name + ": damaged"), 0u) << e.what();
    }
  }
}

// 16 MiB of zeros behind two filters for a chunk of 64 bytes: each filter expands a thousandfold.
TEST(Chunks, ChunksThatExpandTooMuchAreRefused) {
  std::string stored(16 << 20, '\0');
  for (int i = 0; i < 2; ++i) {
    std::string packed(compressBound(stored.size()), '\0');
    uLongf bytes = packed.size();
    ASSERT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &bytes, reinterpret_cast<const Bytef*>(stored.data()),
                       stored.size()),
              Z_OK);
    stored = packed.substr(0, bytes);
  }
  ASSERT_LT(stored.size(), 4096u);
  ChunkedLayout layout;
  layout.shape = layout.chunk = {64};
  layout.element_bytes = 1;
  layout.filters = {{2, "shuffle", {2}}, {1, "gzip", {}}, {1, "gzip", {}}};
  layout.chunks.resize(1);
  layout.filters.insert(layout.filters.begin(), {1, "gzip", {}});
  ByteBuffer raw, out;
  raw.resize_uninitialized(stored.size());
  std::memcpy(raw.data(), stored.data(), stored.size());
  EXPECT_THROW(decode_chunk(layout, 0, raw, out), Error);
  EXPECT_LT(std::max(raw.size(), out.size()), 1u << 20);
  raw.resize_uninitialized(1 << 20);  // the limit applied to that chunk only
}

TEST(Chunks, HeapCollectionsWhoseSizeOverflowsAreRefused) {
  std::string file = "GCOL" + std::string("\1\0\0\0", 4) + std::string(8, '\xff');  // the largest possible size
  file += std::string("\2\0\1\0\0\0\0\0\xd8\xff\xff\xff\xff\xff\xff\xff", 16) + std::string(64, '\0');
  int reads = 0;
  std::string out;
  try {
    read_global_heap_object(
        [&](std::uint64_t offset, char* to, std::size_t bytes) {
          if (++reads > 10) throw std::runtime_error("it reads in an endless loop");
          if (offset + bytes > file.size()) fail(Exit::data, "past the end");
          std::memcpy(to, file.data() + offset, bytes);
        },
        {0, 1, 8}, out);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::data);
  }
}

TEST(Chunks, FiltersWithoutADecoderAreNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  write_filtered(path, {{"x", H5T_STD_I32LE, {40}, {8}, numbers(160)}},
                 {"", [](hid_t p, unsigned) { H5Pset_scaleoffset(p, H5Z_SO_INT, 0); }});
  const File file = File::open(path);
  EXPECT_EQ(file.info("x").unsupported_reason, "");
  EXPECT_NE(unsupported_filter_reason(file.chunked_layout("x").filters).find("scaleoffset"), std::string::npos);
}

}  // namespace chunks_test
}  // namespace millrace::io
