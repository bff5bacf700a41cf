// The keys of [data].
#include "config/key_groups.hpp"
#include "millrace/config/key_types.hpp"

namespace millrace {
namespace {

using Layout = DataOptions::Layout;

const Range samples{.low = 1, .high = double(std::int64_t(1) << 40)};
const Range cache_bytes{.low = 1, .high = double(1ull << 50)};

void add_files(Keys& k) {
  const char* paths = "paths or globs";
  const char* names = "name, or names with commas";
  k.push_back(strings_key(MR_FIELD(data.train), Key::Many::words, paths,
                          "HDF5 files to train on, or synthetic:images:rows=50000,shape=32x32x3,classes=10,seed=1"));
  k.push_back(strings_key(MR_FIELD(data.valid), Key::Many::words, paths, "HDF5 files to evaluate on"));
  k.push_back(text_key(MR_FIELD(data.x), names,
                       "name of the data set of samples in the files; several are concatenated along the channels, or "
                       "named by `input` lines in model.layers"));
  k.push_back(text_key(MR_FIELD(data.y), names,
                       "name of the data set of labels or targets; several floating-point ones are concatenated to one "
                       "target, and several of any kind are for `loss` lines in model.layers"));
  k.push_back(number_key(MR_FIELD(data.ignore_label), Range{.low = 0, .high = 2147483647},
                         "label that does not count, neither in the loss nor in the accuracy, as negative labels never "
                         "do: 255 in many label maps; auto: the files' attribute ignore_label, else none",
                         double(ignore_label_from_files)));
}

// What a sample is.
void add_view(Keys& k) {
  k.push_back(choice_key(MR_FIELD(data.sample),
                         Choices<SampleKind>{{"rows", SampleKind::rows},
                                             {"patch", SampleKind::patch},
                                             {"pair", SampleKind::pair},
                                             {"tokens", SampleKind::tokens}},
                         "what a sample is. rows: a row of x with a row of y; patch: a square around a labelled pixel "
                         "of a scene; pair: row t of x, with row t + data.lead of x as its target; tokens: a window of "
                         "a token sequence, with the next token as its label (or data.token_labels)"));
  k.push_back(number_key(MR_FIELD(data.patch), at_least(0), "sample = patch: side of the square in pixels, odd"));
  k.push_back(number_key(MR_FIELD(data.holdout), fraction(),
                         "sample = patch: fraction of the labelled pixels of a scene that data.valid gets, in blocks. "
                         "data.train omits these pixels and a margin around them. Name the scene in both keys"));
  k.push_back(number_key(MR_FIELD(data.lead), at_least(1), "sample = pair: rows from a sample to its target"));
  k.push_back(number_key(MR_FIELD(data.window), at_least(0), "sample = tokens: tokens of a sample"));
  k.push_back(number_key(MR_FIELD(data.stride), at_least(1),
                         "sample = tokens: tokens from the start of a window to the start of the next"));
  k.push_back(choice_key(MR_FIELD(data.token_labels),
                         Choices<TokenLabels>{{"last", TokenLabels::last}, {"every", TokenLabels::every}},
                         "sample = tokens: what the network predicts. last: the token after the window; every: at each "
                         "position, the token after it"));
  k.push_back(number_key(MR_FIELD(data.vocabulary), Range{.low = 1, .high = 2147483647},
                         "sample = tokens: size of the vocabulary; every token that is read is checked against it; "
                         "auto: the file's attribute classes, else the largest token plus one, for which all files are "
                         "read at the start of the run",
                         auto_is_zero));
}

void add_values(Keys& k) {
  k.push_back(choice_key(MR_FIELD(data.layout),
                         Choices<Layout>{{"auto", Layout::automatic},
                                         {"channels_last", Layout::channels_last},
                                         {"channels_first", Layout::channels_first},
                                         {"no_channels", Layout::no_channels}},
                         "position of the channels in a sample. no_channels: all extents are spatial, and one channel "
                         "is added; auto: the file's attribute, else guessed from the shape. 1-D signals need this key "
                         "or the attribute"));
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
                         "function of the scaled values v, applied before they are normalised; log1p: ln(1 + v)"));
  k.push_back(strings_key(MR_FIELD(data.channels), Key::Many::words, "numbers and ranges",
                          "stored channels that the network takes, in this order, counted from 0: 0-3 7; empty: all"));
  k.push_back(
      switch_key(MR_FIELD(data.normalize), "subtract the mean of each channel and divide by its standard deviation"));
  k.push_back(
      switch_key(MR_FIELD(data.normalize_targets),
                 "regression: subtract the mean of each target over the training data and divide by its "
                 "standard deviation. The loss is then in these units; predictions and the other metrics are in "
                 "those of the data"));
  k.push_back(numbers_key(MR_FIELD(data.mean), Range{},
                          "mean of each channel that the network takes, after scale, offset and transform; needs "
                          "data.std; empty: from the files, or measured"));
  k.push_back(numbers_key(MR_FIELD(data.std), above(0), "standard deviation of each channel; needs data.mean"));
}

void add_extents(Keys& k) {
  k.push_back(numbers_key(MR_FIELD(data.subvolume), at_least(1),
                          "spatial extents of the part of a sample that the network takes: its centre, or a random "
                          "part in training with data.augment; empty: the whole sample"));
  k.push_back(number_key(MR_FIELD(data.resize), at_least(0),
                         "encoded images (JPEG, PNG): length of the short side in pixels; 0: not resized"));
  k.push_back(number_key(MR_FIELD(data.crop), at_least(0),
                         "encoded images: side of the square that is cut from the centre; 0: data.resize; both 0: all "
                         "images must have one size"));
}

Key cache_key() {
  Key key = text_key(
      "data.cache", [](auto& c) -> auto& { return c.data.cache.where; }, "none, memory or path",
      "local copies of the files on each node, made by its ranks together during the first epoch. memory: in /dev/shm, "
      "removed at the end of the run; a path with a /: a folder local to the node, which the next run reuses");
  key.set = [any = key.set](RunConfig& c, const std::vector<std::string>& words) {
    const std::string& text = single_word(words);
    if (text != "none" && text != "memory" && text.find('/') == text.npos)
      fail(Exit::config, "'{}' is neither none, memory nor a path with a /. a folder here is ./{}", text, text);
    any(c, words);
  };
  return key;
}

void add_reading(Keys& k) {
  k.push_back(choice_key(
      MR_FIELD(data.reader),
      Choices<Reader>{{"auto", Reader::automatic},
                      {"direct", Reader::direct},
                      {"mmap", Reader::mmap},
                      {"uring", Reader::uring},
                      {"mpio", Reader::mpio},
                      {"mpio_collective", Reader::mpio_collective}},
      "how files are read; all readers give the same bytes. direct: pread through the page cache, also of chunks, "
      "which "
      "the loader threads decode; mmap: memory-mapped files; uring: many reads at a time that bypass the page cache "
      "(O_DIRECT, io_uring); mpio: HDF5 through MPI-IO, for any file, with one loader thread; mpio_collective: the "
      "same "
      "as collective reads of all ranks; auto: direct for chunks and on network file systems, else mmap for data that "
      "fits in half of the free memory and uring for larger data"));
  k.push_back(cache_key());
  k.push_back(size_key(
      "data.cache_budget", [](auto& c) -> auto& { return c.data.cache.budget; }, cache_bytes,
      "most bytes of local copies on a node; auto: the free space less a twentieth", true));
  k.push_back(switch_key(MR_FIELD(data.manifest_cache),
                         "for 64 files or more: keep the contents of their headers beside them (else in "
                         "$XDG_CACHE_HOME/millrace). The next start then checks only their sizes and times"));
  k.push_back(number_key(MR_FIELD(data.workers), between(0, 256),
                         "loader threads of a rank, at most 256; 0: the training step reads by itself; auto: by the "
                         "number of free cores",
                         -1));
  k.push_back(number_key(MR_FIELD(data.prefetch), at_least(2),
                         "micro-batches that are read ahead, each of which needs host memory for its samples; auto: 4, "
                         "doubled whenever the step waited for data that could have been read before, up to 64 MiB of "
                         "them",
                         auto_is_zero));
  k.push_back(size_key(MR_FIELD(data.chunk_cache), cache_bytes,
                       "chunked data: most memory of a rank for decoded chunks that are kept"));
}

// Also accepts on|off, yes|no and so on: the words of this key when it was a switch.
Key shuffle_key() {
  Key key = choice_key(
      MR_FIELD(data.shuffle),
      Choices<Shuffle>{{"global", Shuffle::global}, {"block", Shuffle::block}, {"off", Shuffle::off}},
      "order of the samples in an epoch. global: all samples in random order; block: blocks of neighbouring samples in "
      "random order, with the samples of several blocks mixed, so that each chunk is decoded once; off: as stored");
  key.set = [strict = key.set](RunConfig& c, std::vector<std::string> words) {
    for (auto& word : words) {
      if (word == "on" || word == "yes" || word == "true" || word == "1") word = "global";
      if (word == "no" || word == "false" || word == "0") word = "off";
    }
    strict(c, words);
  };
  return key;
}

void add_order(Keys& k) {
  k.push_back(shuffle_key());
  k.push_back(number_key(MR_FIELD(data.shuffle_window), samples,
                         "shuffle = block: samples of consecutive blocks that are mixed, rounded up to whole blocks; "
                         "auto: as many as fit in half of data.chunk_cache",
                         auto_is_zero));
  k.push_back(number_key(MR_FIELD(data.shuffle_block), samples,
                         "shuffle = block: samples of a block, which are neighbours in the file; auto: the rows of a "
                         "chunk, or of 1 MiB if the data is not chunked",
                         auto_is_zero));
}

void add_places(Keys& k) {
  k.push_back(switch_key(MR_FIELD(data.augment),
                         "in training: random crop after padding, random flip, and the changes of the following keys; "
                         "images only"));
  k.push_back(number_key(MR_FIELD(data.crop_pad), at_least(0),
                         "augment: pixels of zero padding on each side before the random crop"));
  k.push_back(switch_key(MR_FIELD(data.flip), "augment: mirror left and right with probability 1/2"));
  k.push_back(numbers_key(MR_FIELD(data.flip_axes), between(0, 2),
                          "with data.flip: spatial axes, counted from 0, each of which is mirrored with probability "
                          "1/2; empty: the last"));
  k.push_back(number_key(MR_FIELD(data.random_resized_crop), between(0, 1),
                         "augment: replaces the random crop by a random part of at least this fraction of the area, "
                         "enlarged to the full size (0.08 is usual for ImageNet); 0: none"));
  k.push_back(number_key(MR_FIELD(data.cutout), at_least(0),
                         "augment: side in pixels of a square at a random place that is set to the mean; 0: none"));
}

void add_colours(Keys& k) {
  k.push_back(number_key(MR_FIELD(data.brightness), fraction(),
                         "augment: multiply the values of each sample by a random factor of 1 +- at most this"));
  k.push_back(
      number_key(MR_FIELD(data.contrast), fraction(),
                 "augment: multiply the distance of the values from the mean by a random factor of 1 +- at most "
                 "this"));
  k.push_back(number_key(MR_FIELD(data.saturation), fraction(),
                         "augment, RGB only: multiply the colour strength by a random factor of 1 +- at most this"));
  k.push_back(number_key(MR_FIELD(data.hue), between(0, 0.5),
                         "augment, RGB only: rotate the hue by a random part of a full turn, at most this in either "
                         "direction"));
}

void add_faults(Keys& k) {
  k.push_back(
      choice_key(MR_FIELD(data.on_error), Choices<OnError>{{"stop", OnError::stop}, {"skip", OnError::skip}},
                 "when a sample cannot be read or decoded. stop: end the run; skip: replace the sample by zeros "
                 "without a label, which do not count; needs class labels"));
  k.push_back(
      number_key(MR_FIELD(data.skip_limit), Range{.low = 0, .high = 1},
                 "on_error = skip: the run ends when more than this fraction of an epoch's samples was skipped"));
  k.push_back(number_key(MR_FIELD(data.retries), between(0, 100),
                         "number of retries of a read that failed with a transient error (EIO, ESTALE, ETIMEDOUT, "
                         "...)"));
  k.push_back(duration_key(MR_FIELD(data.retry_delay), between(0, 5),
                           "wait before the first of these retries; it doubles with each, up to 5s"));
  k.push_back(duration_key(MR_FIELD(data.slow_read), at_least(0),
                           "a read that takes longer causes a warning that names rank and file, once for each file; "
                           "0s: never"));
  k.push_back(duration_key(MR_FIELD(data.read_timeout), at_least(0),
                           "a read that takes longer ends the run with exit code 3; 0s: never. Keep it below "
                           "comm.timeout, at which the run ends without knowing the file"));
}

}  // namespace

void add_data_keys(Keys& k) {
  add_files(k);
  add_split_keys(k);
  add_view(k);
  add_values(k);
  add_extents(k);
  add_reading(k);
  add_order(k);
  add_places(k);
  add_colours(k);
  add_faults(k);
}

}  // namespace millrace
