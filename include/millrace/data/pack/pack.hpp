// Packs the rows of an importer into shards that can be read at the speed of the disk: contiguous, allocated early,
// aligned to 4 KiB, in a native type, shuffled globally with a seed, split into training and validation, with
// statistics as attributes. All ranks write collectively through MPI-IO.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/transform.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/data/pack/importer.hpp"
#include "millrace/io/chunks.hpp"

namespace millrace {

struct PackOptions {
  std::filesystem::path out;     // folder of the shards
  std::string prefix = "train";  // files <prefix>-00000.h5 ...; with a split, also valid-00000.h5 ...
  std::uint64_t shard_bytes = 1u << 30;
  bool shuffle = true;
  std::uint64_t seed = 1;
  double valid_fraction = 0;  // of the rows, after the shuffle; written with the prefix "valid"
  bool overwrite = false;
  std::optional<io::Encoder> codec = {};  // compresses x in chunks; none: contiguous
  std::int64_t chunk_rows = 0;            // rows per chunk; 0: as many as fit into 16 KiB, at least one
  std::int64_t ignore_label = -1;         // labels of this value are no class; -1: no such value
  Transform transform = Transform::none;  // mean and std are those of transformed values; values are stored unchanged
};

struct PackReport {
  std::vector<std::string> files;
  std::int64_t rows = 0, valid_rows = 0;
  std::uint64_t bytes = 0, own_bytes = 0;  // bytes written by all ranks, by this rank
  std::uint64_t row_bytes = 0;             // bytes of all rows before compression
  std::string io_mode;                     // how MPI-IO performed the writes; with a codec, how chunks were written
  double seconds = 0;
};

// Collective. Attributes of the root group: format ("millrace-1"), layout ("channels_last" | "channels_first"),
// classes, class_names, ignore_label, scale, offset (if not 0); of x: mean and std (per channel, of transform(value *
// scale + offset)), transform. The data set row_crc32c has the checksums of the rows (row_checksums.hpp). Shards are
// written under .tmp names and renamed when all are complete; a full disk leaves no shard behind.
PackReport pack(World&, const Importer&, const PackOptions&);

// Collective. Packs a folder of images by class without decoding them: x is uint8 [bytes]; x_offsets is int64 [rows +
// 1], where image i is the bytes [x_offsets[i], x_offsets[i + 1]); y is int32 [rows]. The attributes are those of
// pack(), without mean and std, which depend on the decoded size. A shard exceeds shard_bytes by one image at most.
// Error(data) names a file that is neither PNG nor JPEG or has a damaged header.
PackReport pack_encoded(World&, const std::string& folder, const PackOptions&);

}  // namespace millrace
