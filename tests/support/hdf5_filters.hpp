// Writes chunked datasets with every filter that millrace decodes without HDF5. The HDF5 library writes them; for
// filters without an encoder, the chunks are encoded here and stored one by one.
#pragma once
#include <hdf5.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>
#ifdef MILLRACE_WITH_LZ4
#include <lz4.h>
#endif
#ifdef MILLRACE_WITH_ZSTD
#include <zstd.h>
#endif
#ifdef MILLRACE_WITH_BLOSC
#include <blosc.h>
#endif

namespace millrace::test {

struct ChunkFilter {
  std::string name;
  std::function<void(hid_t dcpl, unsigned element)> set;
  std::function<std::string(const std::string& chunk, unsigned element)> encode = nullptr;  // null: HDF5 encodes
};

inline std::string big_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += char(value >> shift);
  return out;
}

// A greedy encoder of LZF, which looks up the last position of each three bytes.
inline std::string lzf(const std::string& in) {
  std::vector<std::ptrdiff_t> last(1 << 12, -1);
  std::string out, literals;
  const auto flush = [&] {
    for (std::size_t at = 0; at < literals.size(); at += 32) {
      const std::string run = literals.substr(at, 32);
      out += char(run.size() - 1) + run;
    }
    literals.clear();
  };
  const auto at = [&](std::size_t i) { return std::size_t(std::uint8_t(in[i])); };
  for (std::size_t i = 0; i < in.size();) {
    std::size_t length = 0;
    std::ptrdiff_t from = -1;
    if (i + 3 <= in.size()) {
      auto& place = last[(at(i) * 31 + at(i + 1) * 7 + at(i + 2)) & 0xfff];
      from = std::exchange(place, std::ptrdiff_t(i));
      if (from >= 0 && std::ptrdiff_t(i) - from <= 8192)
        while (length < 264 && i + length < in.size() && in[std::size_t(from) + length] == in[i + length]) ++length;
    }
    if (length < 3) {
      literals += in[i++];
      continue;
    }
    flush();
    const std::size_t distance = i - std::size_t(from) - 1, coded = length - 2;
    out += char(std::min<std::size_t>(coded, 7) << 5 | distance >> 8);
    if (coded >= 7) out += char(coded - 7);
    out += char(distance & 255);
    i += length;
  }
  flush();
  return out;
}

// Computed bit by bit, from the definition.
inline std::string shuffle_bits(const std::string& in, std::size_t element) {
  const std::size_t count = in.size() / element;
  std::string out(in.size(), '\0');
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t bit = 0; bit < 8 * element; ++bit)
      if (in[i * element + bit / 8] >> (bit % 8) & 1) out[bit * (count / 8) + i / 8] |= char(1 << (i % 8));
  return out;
}

// Shuffles bits in blocks of 64 elements. A remainder of fewer than 8 elements is copied.
inline std::string bitshuffle(const std::string& in, std::size_t element,
                              const std::function<std::string(const std::string&)>& compress) {
  constexpr std::size_t block = 64;
  std::string out = compress ? big_endian(in.size(), 8) + big_endian(block * element, 4) : "";
  const std::size_t whole = in.size() / element / 8 * 8;
  for (std::size_t first = 0; first < whole; first += block) {
    const std::size_t n = std::min(block, whole - first);
    const std::string bits = shuffle_bits(in.substr(first * element, n * element), element);
    const std::string stored = compress ? compress(bits) : bits;
    out += (compress ? big_endian(stored.size(), 4) : "") + stored;
  }
  return out + in.substr(whole * element);
}

#ifdef MILLRACE_WITH_LZ4
inline std::string lz4_block(const std::string& in) {
  std::string out(std::size_t(LZ4_compressBound(int(in.size()))), '\0');
  out.resize(std::size_t(LZ4_compress_default(in.data(), out.data(), int(in.size()), int(out.size()))));
  return out;
}
inline std::string lz4(const std::string& in) {
  constexpr std::size_t block = 1000;  // so that there are several blocks, and the last one is shorter
  std::string out = big_endian(in.size(), 8) + big_endian(block, 4);
  for (std::size_t at = 0; at < in.size(); at += block) {
    const std::string part = in.substr(at, block), packed = lz4_block(part);
    const std::string& stored = packed.size() < part.size() ? packed : part;
    out += big_endian(stored.size(), 4) + stored;
  }
  return out;
}
#endif
#ifdef MILLRACE_WITH_ZSTD
inline std::string zstd(const std::string& in) {
  std::string out(ZSTD_compressBound(in.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), in.data(), in.size(), 1));
  return out;
}
#endif
#ifdef MILLRACE_WITH_BLOSC
inline std::string blosc(const std::string& in, unsigned element) {
  std::string out(in.size() + BLOSC_MAX_OVERHEAD, '\0');
  out.resize(std::size_t(
      blosc_compress_ctx(5, 1, element, in.size(), in.data(), out.data(), out.size(), BLOSC_LZ4_COMPNAME, 0, 1)));
  return out;
}
#endif

inline void add_filter(hid_t dcpl, H5Z_filter_t id, std::vector<unsigned> values) {
  H5Pset_filter(dcpl, id, H5Z_FLAG_OPTIONAL, values.size(), values.data());
}

// Filters that need no library besides HDF5 and zlib.
inline std::vector<ChunkFilter> basic_chunk_filters() {
  return {
      {"plain", [](hid_t, unsigned) {}},
      {"gzip", [](hid_t p, unsigned) { H5Pset_deflate(p, 4); }},
      {"shuffle+gzip",
       [](hid_t p, unsigned) {
         H5Pset_shuffle(p);
         H5Pset_deflate(p, 9);
       }},
      {"fletcher32", [](hid_t p, unsigned) { H5Pset_fletcher32(p); }},
      {"shuffle+gzip+fletcher32",
       [](hid_t p, unsigned) {
         H5Pset_shuffle(p);
         H5Pset_deflate(p, 1);
         H5Pset_fletcher32(p);
       }},
      {"fletcher32+shuffle+gzip",
       [](hid_t p, unsigned) {
         H5Pset_fletcher32(p);
         H5Pset_shuffle(p);
         H5Pset_deflate(p, 1);
       }},
      {"gzip+gzip",
       [](hid_t p, unsigned) {
         H5Pset_deflate(p, 1);
         H5Pset_deflate(p, 9);
       }},
      {"lzf", [](hid_t p, unsigned) { add_filter(p, 32000, {}); },
       [](const std::string& c, unsigned) { return lzf(c); }},
      {"bitshuffle",
       [](hid_t p, unsigned element) {
         add_filter(p, 32008, {0, 3, element, 64, 0});
       },
       [](const std::string& c, unsigned element) { return bitshuffle(c, element, nullptr); }},
  };
}

inline std::vector<ChunkFilter> chunk_filters() {
  std::vector<ChunkFilter> all = basic_chunk_filters();
#ifdef MILLRACE_WITH_SZIP
  if (H5Zfilter_avail(H5Z_FILTER_SZIP) > 0) {
    all.push_back({"szip", [](hid_t p, unsigned) { H5Pset_szip(p, H5_SZIP_NN_OPTION_MASK, 8); }});
    all.push_back({"shuffle+szip", [](hid_t p, unsigned) {
                     H5Pset_shuffle(p);
                     H5Pset_szip(p, H5_SZIP_EC_OPTION_MASK, 4);
                   }});
  }
#endif
#ifdef MILLRACE_WITH_LZ4
  all.push_back({"lz4", [](hid_t p, unsigned) { add_filter(p, 32004, {1000}); },
                 [](const std::string& c, unsigned) { return lz4(c); }});
  all.push_back({"bitshuffle+lz4",
                 [](hid_t p, unsigned element) {
                   add_filter(p, 32008, {0, 3, element, 0, 2});
                 },
                 [](const std::string& c, unsigned element) { return bitshuffle(c, element, lz4_block); }});
#endif
#ifdef MILLRACE_WITH_ZSTD
  all.push_back({"zstd", [](hid_t p, unsigned) { add_filter(p, 32015, {1}); },
                 [](const std::string& c, unsigned) { return zstd(c); }});
  all.push_back({"bitshuffle+zstd",
                 [](hid_t p, unsigned element) {
                   add_filter(p, 32008, {0, 4, element, 0, 3});
                 },
                 [](const std::string& c, unsigned element) { return bitshuffle(c, element, zstd); }});
#endif
#ifdef MILLRACE_WITH_BLOSC
  all.push_back({"blosc", [](hid_t p, unsigned element) { add_filter(p, 32001, {2, 2, element, 0, 5, 1, 1}); }, blosc});
#endif
  return all;
}

// The chunk at `first`; elements beyond the edges of the dataset are zero.
inline std::string cut(const std::string& values, unsigned element, const std::vector<hsize_t>& shape,
                       const std::vector<hsize_t>& chunk, const std::vector<hsize_t>& first) {
  std::string out;
  std::vector<hsize_t> at(shape.size(), 0);
  for (bool more = true; more;) {
    hsize_t index = 0;
    bool inside = true;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      inside = inside && first[d] + at[d] < shape[d];
      index = index * shape[d] + first[d] + at[d];
    }
    out += inside ? values.substr(std::size_t(index) * element, element) : std::string(element, '\0');
    more = false;
    for (std::size_t d = shape.size(); d-- > 0 && !more; at[d] = more ? at[d] : 0) more = ++at[d] < chunk[d];
  }
  return out;
}

struct ChunkedDataset {
  std::string name;
  hid_t type;
  std::vector<hsize_t> shape, chunk;  // an empty chunk means contiguous storage
  std::string values;                 // elements of the stored type, in C order
};

inline void write_column(hid_t file, const ChunkedDataset& c, const ChunkFilter& packing) {
  const auto element = unsigned(H5Tget_size(c.type));
  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
  const hid_t space = H5Screate_simple(int(c.shape.size()), c.shape.data(), nullptr);
  if (!c.chunk.empty()) {
    H5Pset_chunk(dcpl, int(c.chunk.size()), c.chunk.data());
    packing.set(dcpl, element);
  }
  const hid_t dataset = H5Dcreate2(file, c.name.c_str(), c.type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
  if (c.chunk.empty() || !packing.encode) {
    H5Dwrite(dataset, c.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, c.values.data());
  } else {
    std::vector<hsize_t> first(c.shape.size(), 0);
    for (bool more = true; more;) {
      const std::string stored = packing.encode(cut(c.values, element, c.shape, c.chunk, first), element);
      H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, first.data(), stored.size(), stored.data());
      more = false;
      for (std::size_t d = c.shape.size(); d-- > 0 && !more; first[d] = more ? first[d] : 0)
        more = (first[d] += c.chunk[d]) < c.shape[d];
    }
  }
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(dcpl);
}

// Runs in a process of its own, without the filters that the io room registers. HDF5 refuses to create a dataset with a
// registered filter that cannot encode, but accepts an optional filter that it does not know.
inline void write_filtered(const std::string& path, const std::vector<ChunkedDataset>& columns,
                           const ChunkFilter& packing, bool new_format = false, hsize_t user_block = 0) {
  const pid_t child = fork();
  if (child == 0) {
    for (const H5Z_filter_t id : {32000, 32001, 32004, 32008, 32015})
      if (H5Zfilter_avail(id) > 0) H5Zunregister(id);
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE);
    if (new_format) H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    if (user_block) H5Pset_userblock(fcpl, user_block);
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, fcpl, fapl);
    for (const ChunkedDataset& c : columns) write_column(file, c, packing);
    _exit(H5Fclose(file) < 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (status != 0) throw std::runtime_error("cannot write " + path);
}

}  // namespace millrace::test
