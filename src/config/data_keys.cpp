// The keys of [data].
#include "millrace/config/key_types.hpp"

namespace millrace {
namespace {

using Layout = DataOptions::Layout;

// Also on|off and so on, as versions had it that knew one order.
Key shuffle_key() {
  Key key = choice_key(
      MR_FIELD(data.shuffle),
      Choices<Shuffle>{{"global", Shuffle::global}, {"block", Shuffle::block}, {"off", Shuffle::off}},
      "the order of an epoch. global: all samples at random; block: blocks of neighbours at random, and the samples of "
      "some blocks among each other, so that each chunk is decoded once; off: as stored");
  key.set = [strict = key.set](RunConfig& c, std::vector<std::string> words) {
    for (auto& word : words) {
      if (word == "on" || word == "yes" || word == "true" || word == "1") word = "global";
      if (word == "no" || word == "false" || word == "0") word = "off";
    }
    strict(c, words);
  };
  return key;
}

Key cache_key() {
  Key key = text_key(
      "data.cache", [](auto& c) -> auto& { return c.data.cache.where; }, "none, memory or path",
      "copies of the files near each node, made by its ranks together during the first epoch: memory "
      "(/dev/shm, gone with the run) or a folder of the node's own, where the next run finds them: a path with a /");
  key.set = [any = key.set](RunConfig& c, const std::vector<std::string>& words) {
    const std::string& text = single_word(words);
    if (text != "none" && text != "memory" && text.find('/') == text.npos)
      fail(Exit::config, "'", text, "' is neither none, memory nor a path with a /. a folder here is ./", text);
    any(c, words);
  };
  return key;
}

void add_faults(std::vector<Key>& k) {
  k.push_back(choice_key(MR_FIELD(data.on_error), Choices<OnError>{{"stop", OnError::stop}, {"skip", OnError::skip}},
                         "when a sample cannot be read or decoded: end the run, or let it count for nothing in its "
                         "place; needs labels"));
  k.push_back(number_key(MR_FIELD(data.skip_limit), Range{.low = 0, .high = 1},
                         "skip: the run ends when more than this share of an epoch's samples was skipped"));
  k.push_back(number_key(MR_FIELD(data.retries), between(0, 100),
                         "how often a read is tried again whose error may pass (EIO, ESTALE, ETIMEDOUT, ...)"));
  k.push_back(duration_key(MR_FIELD(data.retry_delay), between(0, 5),
                           "wait before the first of these tries; it doubles with each, to 5s at most"));
  k.push_back(duration_key(MR_FIELD(data.slow_read), at_least(0),
                           "warn of a read that takes longer, once a file, with rank and file; 0s: never"));
  k.push_back(
      duration_key(MR_FIELD(data.read_timeout), at_least(0),
                   "a read that takes longer ends the run with exit 3; 0s: never. shorter than comm.timeout, or "
                   "the ranks that wait end it without naming the file"));
}

void add_view(std::vector<Key>& k) {
  k.push_back(choice_key(MR_FIELD(data.sample),
                         Choices<SampleKind>{{"rows", SampleKind::rows},
                                             {"patch", SampleKind::patch},
                                             {"pair", SampleKind::pair},
                                             {"tokens", SampleKind::tokens}},
                         "what a sample is. rows: a row of x with one of y; patch: a square around a labelled pixel of "
                         "a scene; pair: row t of x, whose target is row t + data.lead of it; tokens: a window of a "
                         "text of token numbers, "
                         "whose label is the token behind it"));
  k.push_back(number_key(MR_FIELD(data.patch), at_least(0), "sample = patch: side of the square, odd"));
  k.push_back(number_key(MR_FIELD(data.holdout), fraction(),
                         "sample = patch: share of the labelled pixels of a scene that data.valid takes, in blocks, "
                         "and data.train leaves away with a margin around them; name the scene in both"));
  k.push_back(number_key(MR_FIELD(data.lead), at_least(1), "sample = pair: rows from a sample to its target"));
  k.push_back(number_key(MR_FIELD(data.window), at_least(0), "sample = tokens: tokens of a sample"));
  k.push_back(number_key(MR_FIELD(data.stride), at_least(1), "sample = tokens: from one window to the next"));
  k.push_back(
      number_key(MR_FIELD(data.vocabulary), Range{.low = 1, .high = 2147483647},
                 "sample = tokens: all are below it, which is checked; auto: the file's attribute classes, else "
                 "the largest in the files and one, for which they are read when the run starts",
                 auto_is_zero));
}

}  // namespace

void add_data_keys(std::vector<Key>& k) {
  const char* paths = "paths or globs";
  k.push_back(strings_key(MR_FIELD(data.train), Key::Many::words, paths,
                          "HDF5 files to train on, or synthetic:images:rows=50000,shape=32x32x3,classes=10,seed=1"));
  k.push_back(strings_key(MR_FIELD(data.valid), Key::Many::words, paths, "HDF5 files to evaluate on"));
  k.push_back(text_key(MR_FIELD(data.x), "name, or names with commas",
                       "data set of the samples inside the files; several are joined along the channels"));
  k.push_back(text_key(MR_FIELD(data.y), "name, or names with commas",
                       "data set of the labels or targets; several floating-point ones are joined to one target"));
  add_view(k);
  k.push_back(choice_key(
      MR_FIELD(data.layout),
      Choices<Layout>{{"auto", Layout::automatic},
                      {"channels_last", Layout::channels_last},
                      {"channels_first", Layout::channels_first},
                      {"no_channels", Layout::no_channels}},
      "where a sample's channels are; auto: the file's attribute, else told by the shape. 1-D signals need it; "
      "no_channels: all extents are spatial, one channel is added"));
  k.push_back(number_key(MR_FIELD(data.scale), above(0),
                         "factor on stored values; auto: the file's attribute (scale, or scale_factor of the data "
                         "set), 1/255 for 8-bit images, else 1",
                         auto_is_zero));
  k.push_back(number_key(MR_FIELD(data.offset), Range{},
                         "added to value * scale; auto: the file's attribute (offset, or add_offset of the data set), "
                         "else 0",
                         offset_from_files));
  k.push_back(choice_key(MR_FIELD(data.transform),
                         Choices<Transform>{{"none", Transform::none}, {"log1p", Transform::log1p}},
                         "log1p: ln(1 + v) of the scaled value, before it is normalised"));
  k.push_back(
      strings_key(MR_FIELD(data.channels), Key::Many::words, "numbers and ranges",
                  "channels that the network takes, in this order, of those stored, from 0: 0-3 7; empty: all"));
  k.push_back(numbers_key(MR_FIELD(data.mean), Range{},
                          "of each channel that the network takes, after scale, offset and transform; with data.std; "
                          "empty: from the files, or measured"));
  k.push_back(numbers_key(MR_FIELD(data.std), above(0), "the standard deviations to data.mean"));
  k.push_back(
      numbers_key(MR_FIELD(data.subvolume), at_least(1),
                  "spatial extents of the part of a sample that the network takes: with data.augment at a random "
                  "place in training, else the middle; empty: all of it"));
  k.push_back(number_key(MR_FIELD(data.resize), at_least(0),
                         "encoded images (JPEG, PNG): pixels of the short side; 0: not resized"));
  k.push_back(number_key(MR_FIELD(data.crop), at_least(0),
                         "encoded images: side of the square cut from the middle; 0: data.resize; both 0: all images "
                         "are of one size"));
  k.push_back(choice_key(
      MR_FIELD(data.reader),
      Choices<Reader>{{"auto", Reader::automatic},
                      {"direct", Reader::direct},
                      {"mmap", Reader::mmap},
                      {"uring", Reader::uring},
                      {"mpio", Reader::mpio},
                      {"mpio_collective", Reader::mpio_collective}},
      "how files are read; all give the same bytes. direct: pread through the page cache, and of chunks that the "
      "workers "
      "decode; mmap: files mapped into memory; uring: past the page cache, many reads under way (O_DIRECT, io_uring); "
      "mpio: HDF5 through MPI-IO, any file, one worker; mpio_collective: the same by all ranks together; auto: mmap "
      "for what fits in half of the free memory, uring for "
      "what does not, direct for chunks and on network file systems"));
  k.push_back(cache_key());
  k.push_back(size_key(
      "data.cache_budget", [](auto& c) -> auto& { return c.data.cache.budget; },
      Range{.low = 1, .high = double(1ull << 50)},
      "most bytes of these copies on a node; auto: what is free there, less a twentieth", true));
  k.push_back(switch_key(MR_FIELD(data.manifest_cache),
                         "64 files or more: what their headers say is kept beside them (else in "
                         "$XDG_CACHE_HOME/millrace) for the next start, which then looks at sizes and times alone"));
  k.push_back(number_key(MR_FIELD(data.workers), between(0, 256),
                         "loader threads of a rank, 256 at most; 0: the step reads by itself; auto: by the free cores",
                         -1));
  k.push_back(number_key(
      MR_FIELD(data.prefetch), at_least(2),
      "micro-batches read ahead; each costs its bytes in host memory. auto: 4, and twice as many whenever the "
      "step waited for what could have been read before, up to 64 MiB of them",
      auto_is_zero));
  k.push_back(shuffle_key());
  const Range samples{.low = 1, .high = double(std::int64_t(1) << 40)};
  k.push_back(number_key(MR_FIELD(data.shuffle_window), samples,
                         "shuffle = block: samples of consecutive blocks that are mixed, rounded up to whole blocks; "
                         "auto: as many as half of data.chunk_cache holds",
                         auto_is_zero));
  k.push_back(number_key(MR_FIELD(data.shuffle_block), samples,
                         "shuffle = block: samples that stay neighbours until they are mixed in a window; auto: the "
                         "rows of a chunk, or of 1 MiB where the data is not chunked",
                         auto_is_zero));
  k.push_back(size_key(MR_FIELD(data.chunk_cache), Range{.low = 1, .high = double(1ull << 50)},
                       "chunked data: most memory of a rank for decoded chunks that are kept"));
  k.push_back(
      switch_key(MR_FIELD(data.normalize), "subtract the mean and divide by the standard deviation of each channel"));
  k.push_back(switch_key(MR_FIELD(data.augment),
                         "in training: random crop after padding, flip, and what follows; images only"));
  k.push_back(
      number_key(MR_FIELD(data.crop_pad), at_least(0), "augment: pixels of zero padding on each side before the crop"));
  k.push_back(switch_key(MR_FIELD(data.flip), "augment: mirror left and right with probability one half"));
  k.push_back(numbers_key(MR_FIELD(data.flip_axes), between(0, 2),
                          "with data.flip: the spatial axes, from 0, of which each is mirrored with probability one "
                          "half; empty: the last"));
  k.push_back(number_key(MR_FIELD(data.random_resized_crop), between(0, 1),
                         "augment: in place of the crop, a random part of at least this share of the area, enlarged to "
                         "the whole image (0.08 is usual for ImageNet); 0: none"));
  k.push_back(
      number_key(MR_FIELD(data.cutout), at_least(0),
                 "augment: side in pixels of a square at a random place that is set to the data's mean; 0: none"));
  k.push_back(number_key(MR_FIELD(data.brightness), fraction(),
                         "augment: values times a random factor of at most so much more or less than 1, one a sample"));
  k.push_back(
      number_key(MR_FIELD(data.contrast), fraction(), "augment: the same of the difference from the data's mean"));
  k.push_back(number_key(MR_FIELD(data.saturation), fraction(),
                         "augment: the same of the strength of colours; three channels: red, green and blue"));
  k.push_back(number_key(MR_FIELD(data.hue), between(0, 0.5),
                         "augment: colours turned by a random part of a full turn, at most so much either way"));
  add_faults(k);
}

}  // namespace millrace
