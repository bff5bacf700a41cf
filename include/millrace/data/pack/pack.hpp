// Packing: any importer's rows -> shards that read at the speed of the disk: contiguous, early-allocated, 4
// KiB-aligned, native dtype, globally shuffled with a seed, train and validation split, statistics in attributes. All
// ranks write, collectively, through MPI-IO.
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
  std::filesystem::path out;     // folder
  std::string prefix = "train";  // files <prefix>-00000.h5 ...; with a split, also valid-00000.h5 ...
  std::uint64_t shard_bytes = 1u << 30;
  bool shuffle = true;
  std::uint64_t seed = 1;
  double valid_fraction = 0;  // of the rows, taken after the shuffle, written with the prefix "valid"
  bool overwrite = false;
  std::optional<io::Encoder> codec = {};  // of x, in chunks; none: contiguous
  std::int64_t chunk_rows = 0;            // of a chunk; 0: a sample, or as many as 16 KiB holds
  Transform transform = Transform::none;  // that mean and std are measured of; values are stored as they are
};

struct PackReport {
  std::vector<std::string> files;
  std::int64_t rows = 0, valid_rows = 0;
  std::uint64_t bytes = 0, own_bytes = 0;  // written by all ranks, by this rank
  std::uint64_t row_bytes = 0;             // of all rows, before any codec
  std::string io_mode;                     // what MPI-IO really did; with a codec, how chunks were written
  double seconds = 0;
};

// Collective. Attributes of the root group: format ("millrace-1"), layout ("channels_last" | "channels_first"),
// classes, scale, offset where it is not 0; of x: mean, std (per channel, of transform(value * scale + offset)),
// transform. A shard is written under a .tmp name and renamed
// when complete; a full disk leaves no shard behind.
PackReport pack(World&, const Importer&, const PackOptions&);

// Collective. A folder of images by class, their bytes as they are: x uint8 [bytes], x_offsets int64 [rows + 1], of
// which image i is bytes [i] to [i + 1], y int32 [rows]; attributes as of pack, without mean and std, which depend on
// the size that images are decoded to. A shard is larger than shard_bytes by an image at most. Error(data) names a file
// that is neither PNG nor JPEG or whose header is damaged.
PackReport pack_encoded(World&, const std::string& folder, const PackOptions&);

}  // namespace millrace
