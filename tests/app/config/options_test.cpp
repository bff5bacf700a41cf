#include "millrace/config/options.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>

#include "millrace/base/files.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/config/keys.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace::app {
namespace options_test {

RunConfig from(const std::string& text, const std::vector<Override>& overrides = {}) {
  return resolve_config({{"a.cfg", text}}, overrides);
}
std::string refusal(const std::string& text, const std::vector<Override>& overrides = {}) {
  return test::message_of([&] { from(text, overrides); }, Exit::config);
}
ParsedArguments command_line(const Arguments& arguments) { return parse_arguments(arguments, {config_flag()}, true); }

TEST(Options, EveryFieldHasItsDefaultWithoutAnyKey) {
  const RunConfig config = from(""), fresh;
  for (const Key& key : keys()) EXPECT_TRUE(key.name == "run.dir" || key.get(config) == key.get(fresh)) << key.name;
  EXPECT_EQ(config.run.dir, "runs/a");
}

TEST(Options, UnknownKeyNamesFileLineKeyAndTheNearestKey) {
  EXPECT_EQ(refusal("# head\n[train]\nstep = 5\n"), "a.cfg:3: unknown key train.step. did you mean train.steps?");
  EXPECT_EQ(refusal("clip = 5\n"), "a.cfg:1: unknown key clip. did you mean optim.clip?");
  EXPECT_EQ(refusal("[model]\nmodel.depth = 8\n"), "a.cfg:2: unknown key model.model.depth. did you mean model.depth?");
}

TEST(Options, ALongUnknownKeyIsAnsweredAtOnceAndBriefly) {
  const auto began = std::chrono::steady_clock::now();
  const std::string message = refusal(std::string(1'000'000, 'a') + " = 5\n");
  EXPECT_EQ(message.find("a.cfg:1: unknown key " + std::string(100, 'a') + ".... did you mean "), 0u);
  EXPECT_LT(message.size(), 300u);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
}

TEST(Options, ThePrometheusFileIsNamedAsTheCollectorExpects) {
  EXPECT_EQ(from("log.prometheus = a/run.prom\n").log.prometheus, "a/run.prom");
  EXPECT_NE(refusal("log.prometheus = /etc/hosts\n").find("log.prometheus: /etc/hosts does not end in .prom"),
            std::string::npos);
}

TEST(Options, KeyGivenTwiceInOneFileIsRefusedWithBothLines) {
  EXPECT_EQ(refusal("[train]\nsteps = 5\n\n[train]\nsteps = 6\n"),
            "a.cfg:5: train.steps is given twice (first in line 2). keep one of them");
}

TEST(Options, ListsMayBeRepeated) {
  const RunConfig config = from(
      "[data]\ntrain = a.h5 b.h5\ntrain = my\\ c.h5\n[model]\nlayers = relu\nlayers = linear 3\nhidden = 3, 4 5\n");
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.h5", "b.h5", "my c.h5"}));
  EXPECT_EQ(config.model.layers, (std::vector<std::string>{"relu", "linear 3"}));
  EXPECT_EQ(config.model.hidden, (std::vector<std::int64_t>{3, 4, 5}));
}

TEST(Options, BadValuesNameFileLineAndKey) {
  EXPECT_EQ(refusal("[train]\nsteps = 1e3\n"), "a.cfg:2: train.steps: '1e3' is not a whole number");
  EXPECT_EQ(refusal("[train]\nglobal_batch = 0\n"),
            "a.cfg:2: train.global_batch: '0' is out of range (must be at least 1)");
  EXPECT_EQ(refusal("[data]\nworkers = 100000\n"),
            "a.cfg:2: data.workers: '100000' is out of range (must be at least 0 and at most 256, or auto)");
  EXPECT_EQ(refusal("[data]\nprefetch = 0\n"),
            "a.cfg:2: data.prefetch: '0' is out of range (must be at least 2, or auto)");
  EXPECT_EQ(refusal("[data]\ncache = memroy\n"),
            "a.cfg:2: data.cache: 'memroy' is neither none, memory nor a path with a /. a folder here is ./memroy");
  EXPECT_EQ(refusal("[run]\ndevice = gpu\n"), "a.cfg:2: run.device: 'gpu' is not one of auto|cpu|cuda");
  EXPECT_EQ(refusal("[model]\ndropout = 1\n"),
            "a.cfg:2: model.dropout: '1' is out of range (must be at least 0 and below 1)");
  EXPECT_EQ(refusal("[model]\nattention_dropout = 1\n"),
            "a.cfg:2: model.attention_dropout: '1' is out of range (must be at least 0 and below 1)");
  EXPECT_EQ(refusal("[model]\nseparator = -1\n"),
            "a.cfg:2: model.separator: '-1' is out of range (must be at least 0 and at most 2147483647)");
  EXPECT_EQ(refusal("[comm]\nbucket_size = 100\n"),
            "a.cfg:2: comm.bucket_size: '100' is out of range (must be at least 1KiB and at most 1TiB)");
  EXPECT_EQ(refusal("[comm]\nbucket_size = 2TiB\n"),
            "a.cfg:2: comm.bucket_size: '2TiB' is out of range (must be at least 1KiB and at most 1TiB)");
  EXPECT_EQ(refusal("[model]\nfusion = 4\n"),
            "a.cfg:2: model.fusion: '4' is out of range (must be at least 0 and at most 3, or auto)");
  EXPECT_EQ(refusal("[comm]\ntimeout = 0s\n"), "a.cfg:2: comm.timeout: '0s' is out of range (must be above 0s)");
  for (const std::string never : {"0", "0e", "0m", "0.0"})
    EXPECT_EQ(refusal("[checkpoint]\nevery = " + never + "\n"),
              "a.cfg:2: checkpoint.every: '" + never +
                  "' is not an interval (write none for never). steps (500), epochs (2e), time (10m), auto or none");
  EXPECT_EQ(refusal("[run]\nseed = -1\n"), "a.cfg:2: run.seed: '-1' is not a whole number");
  EXPECT_EQ(refusal("[optim]\nlr = nan\n"), "a.cfg:2: optim.lr: 'nan' is not a number");
  EXPECT_EQ(refusal("[optim]\nlr =\n"), "a.cfg:2: optim.lr: a value is missing");
  EXPECT_EQ(refusal("; remark\n"),
            "a.cfg:1: '; remark' is not a valid line. write key = value, [section] or # comment");
  for (const char* text :
       {"comm.bucket_size = 5 parsecs", "comm.timeout = soon", "checkpoint.every = often", "run.deterministic = maybe",
        "data.prefetch = 1", "model.hidden = 3 x", "train.steps = 9999999999999999999999"})
    EXPECT_EQ(refusal(text).find("a.cfg:1: "), 0u) << refusal(text);
}

TEST(Options, UnitsAndWordsAreUnderstood) {
  const RunConfig config = from(
      "comm.bucket_size = 4MiB\nrun.walltime = 1h30m\ndata.workers = auto\ncheckpoint.every = 10m\nrun.deterministic = "
      "no\n"
      "run.threads = 3 # a remark\r\noptim.lr = 1e-3\ndata.scale = auto\n");
  EXPECT_EQ(config.comm.bucket_size, 4u << 20);
  EXPECT_EQ(config.run.walltime, 5400);
  EXPECT_EQ(config.data.workers, -1);
  EXPECT_EQ(config.checkpoint.every, "10m");
  EXPECT_FALSE(config.run.deterministic);
  EXPECT_EQ(config.run.threads, 3);
  EXPECT_EQ(config.optim.lr, 1e-3);
  EXPECT_EQ(config.data.scale, 0);
}

TEST(Options, LaterFilesOverrideEarlierOnesAndTheCommandLineOverridesAll) {
  const RunConfig config =
      resolve_config({{"x/first.cfg", "[train]\nsteps = 1\nepochs = 1\nglobal_batch = 7\n[data]\ntrain = a\n"},
                      {"second.cfg", "[train]\nsteps = 2\nepochs = 2\n[data]\ntrain = b\n"}},
                     {{"train.steps", {"3"}}});
  EXPECT_EQ(config.train.steps, 3);
  EXPECT_EQ(config.train.epochs, 2);
  EXPECT_EQ(config.train.global_batch, 7);
  EXPECT_EQ(config.data.train, std::vector<std::string>{"b"});
  EXPECT_EQ(config.run.dir, "runs/first");
}

TEST(Options, TheTimeoutIsKnownBeforeMpi) {
  const test::TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& text) {
    write_file_atomically(folder.path / name, text);
    return folder / name;
  };
  const std::string minute =
      file("minute.cfg", "[comm]\ntimeout = 1m  # long\n[no]\nkey = 1\n[comm]\ngrad_dtype = x\n");
  const std::string hour = file("hour.cfg", "comm.timeout = 1h\n"), none = file("none.cfg", "[train]\nepochs = 2\n");
  const std::string wrong = file("wrong.cfg", "comm.timeout = -1s\n"),
                    text = file("text.cfg", "comm.timeout = 1h\ntext\n");
  EXPECT_EQ(timeout_before_mpi({"--comm.timeout", "2s", "-c", hour}), 2.);
  EXPECT_EQ(timeout_before_mpi({"-c", hour, "--data.train", "a", "b", "--comm.timeout=90s", "--no.key"}), 90.);
  EXPECT_EQ(timeout_before_mpi({"-c", minute}), 60.);
  EXPECT_EQ(timeout_before_mpi({"--config=" + minute, "--train.steps", "5", "-c", hour, none}), 3600.);
  for (const Arguments& arguments : {Arguments{},
                                     {"-c", none},
                                     {"-c"},
                                     {"-c", wrong},
                                     {"-c", text},
                                     {"-c", folder.path.string()},
                                     {"-c", "missing"},
                                     {"--comm.timeout"},
                                     {"--comm.timeout", "soon"},
                                     {"--comm.timeout", "1s", "--comm.timeout", "1s"},
                                     {"--comm"}})
    EXPECT_FALSE(timeout_before_mpi(arguments)) << (arguments.empty() ? "" : arguments.back());
}

TEST(Options, KeysMustBeWrittenInFull) {
  EXPECT_EQ(test::message_of(
                [] {
                  command_line({"--train.st", "5"});
                },
                Exit::config),
            "command line: unknown key train.st. did you mean --train.steps?");
  EXPECT_EQ(test::message_of([] { command_line({"--train.step=5"}); }, Exit::config),
            "command line: unknown key train.step. did you mean --train.steps?");
  EXPECT_NE(test::message_of([] { reject_positional(command_line({"train.steps=5"})); }, Exit::config)
                .find("belongs to no option"),
            std::string::npos);
}

TEST(Options, CommandLineTakesListsNegativeNumbersAndEmptyValues) {
  const ParsedArguments parsed =
      command_line({"-c", "a", "-c", "b", "--data.train", "my c.h5", "d.h5", "--data.offset", "-1", "--model.layers",
                    "conv 3 3", "--model.layers", "relu", "--train.steps=5", "--data.valid", ""});
  EXPECT_EQ(parsed.list("config"), (std::vector<std::string>{"a", "b"}));
  const RunConfig config = from("data.valid = v.h5\ndata.offset = 4\n", parsed.keys);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"my c.h5", "d.h5"}));
  EXPECT_TRUE(config.data.valid.empty());
  EXPECT_EQ(config.data.offset, -1);
  EXPECT_EQ(config.model.layers, (std::vector<std::string>{"conv 3 3", "relu"}));
  EXPECT_EQ(config.train.steps, 5);
}

TEST(Options, CommandLineKeyGivenTwiceIsRefused) {
  const ParsedArguments parsed = command_line({"--train.steps", "5", "--train.steps", "6"});
  EXPECT_EQ(refusal("", parsed.keys), "command line: --train.steps is given twice. keep one of them");
  EXPECT_EQ(refusal("", {{"optim.zero", {"on"}}}), "command line: optim.zero: 'on' is neither a whole number nor auto");
}

TEST(Options, PrintedConfigurationResolvesToItself) {
  const RunConfig config = from(
      "run.dir = out dir\ndata.train = a\\ b.h5 c.h5\nmodel.layers = conv 3 3 as=x\nmodel.layers = add x\noptim.lr = "
      "0.1234567890123\n"
      "optim.milestones = 30 0.1\ncomm.timeout = 250ms\ncomm.bucket_size = 1000001\ntest.force_overflow_at = "
      "7\nmodel.hidden =\n"
      "optim.epsilon = 1e-300\nrun.seed = 18446744073709551615\nrun.walltime = 1d\ndata.layout = channels_first\n");
  const RunConfig again = resolve_config({{"other.cfg", config.text}}, {});
  for (const Key& key : keys()) EXPECT_EQ(key.get(config), key.get(again)) << key.name;
  EXPECT_EQ(config.text, again.text);
  EXPECT_EQ(again.optim.lr, 0.1234567890123);
  EXPECT_EQ(again.run.seed, ~0ull);
}

std::string warnings_of(const std::function<void()>& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

// Former names of keys, each with a value that is not the default.
struct Renamed {
  const char *old_name, *name, *value;
};
const Renamed renamed[] = {{"comm.compress", "comm.grad_dtype", "bf16"},
                           {"comm.bucket", "comm.bucket_size", "4MiB"},
                           {"data.zoom", "data.random_resized_crop", "0.5"},
                           {"cuda.channels", "cuda.nccl_max_ctas", "4"},
                           {"cuda.graph_batches", "cuda.graph_micro_batches", "8"},
                           {"cuda.tune", "cuda.autotune", "off"},
                           {"optim.trust", "optim.trust_coefficient", "0.5"},
                           {"log.trace", "log.profile_steps", "7"},
                           {"train.test_force_overflow_at", "test.force_overflow_at", "7"},
                           {"train.test_compute", "test.compute_delay", "1s"},
                           {"comm.test_delay", "test.all_reduce_delay", "1s"}};

TEST(Options, EveryFormerNameIsAcceptedWithOneWarningThatNamesTheNewKey) {
  ASSERT_EQ(key_aliases().size(), std::size(renamed));
  for (const auto& [old_name, name, value] : renamed) {
    const std::string line = fmt::format("{} = {}\n", old_name, value);
    const std::string warning = fmt::format("warning: a.cfg:1: {} is deprecated. use {} instead\n", old_name, name);
    EXPECT_EQ(warnings_of([&, name = name, value = value] {
                EXPECT_EQ(from(line).text, from(fmt::format("{} = {}", name, value)).text);
              }),
              warning);
    EXPECT_NE(from(line).text, from("").text) << name;
    EXPECT_EQ(warnings_of([&] { from(line); }), "") << "the warning is printed once";
    EXPECT_EQ(from("", command_line({fmt::format("--{}", old_name), value}).keys).text, from(line).text) << name;
    EXPECT_EQ(from("", {{old_name, {value}}}).text, from(line).text) << name;
    const std::string leaf = std::string(old_name).substr(std::string(old_name).find('.') + 1) + " = ";
    EXPECT_EQ(from(line).text.find("\n" + leaf), std::string::npos) << "printed configurations use the new name";
    EXPECT_EQ(keys_help().find(fmt::format("--{} ", old_name)), std::string::npos);
    EXPECT_EQ(configuration_page().find(fmt::format("\n| `{}` | {}", old_name, find_key(name)->value_format)),
              std::string::npos);
  }
}

TEST(Options, AKeyGivenByBothOfItsNamesIsRefused) {
  for (const auto& [old_name, name, value] : renamed) {
    EXPECT_EQ(refusal(fmt::format("{} = {}\n{} = {}\n", old_name, value, name, value)),
              fmt::format("a.cfg:2: {} is given twice (first in line 1 as {}). keep one of them", name, old_name));
    EXPECT_EQ(refusal("", command_line({fmt::format("--{}", old_name), value, fmt::format("--{}", name), value}).keys),
              fmt::format("command line: --{} is given twice. keep one of them", name));
  }
  EXPECT_EQ(from("comm.bucket = 1MiB", {{"comm.bucket_size", {"2MiB"}}}).comm.bucket_size, 2u << 20)
      << "the command line overrides a file, whatever the names are";
}

TEST(Options, NamesOfOtherProgramsWithOneMeaningAreReadAsTheKey) {
  for (const auto& [name, key] : key_synonyms()) {
    const std::string value = key.starts_with("optim.") ? "0.25" : "5", line = fmt::format("{} = {}\n", name, value);
    EXPECT_TRUE(std::none_of(keys().begin(), keys().end(), [&](const Key& k) { return k.name == name; })) << name;
    EXPECT_EQ(warnings_of([&, name = name, key = key] {
                EXPECT_EQ(from(line).text, from(fmt::format("{} = {}", key, value)).text);
              }),
              fmt::format("a.cfg:1: {} is read as {}{}\n", name, key,
                          key == "train.global_batch" ? ", the samples of a step over all ranks" : ""));
    EXPECT_EQ(warnings_of([&] { from(line); }), "") << "the line is printed once";
    EXPECT_EQ(from("", command_line({"--" + name, value}).keys).text, from(line).text) << name;
  }
  EXPECT_EQ(from("lr = 0.5\n[train]\nmax_epochs = 7\n[optim]\nwd = 0.125").optim.lr, 0.5);
  EXPECT_EQ(from("[train]\nmax_epochs = 7").train.epochs, 7);
  EXPECT_EQ(refusal("lr = 1\noptim.lr = 2\n"),
            "a.cfg:2: optim.lr is given twice (first in line 1 as lr). keep one of them");
  EXPECT_EQ(refusal("[optim]\nlearning_rate = fast\n").find("a.cfg:2: optim.lr: "), 0u);
  const Flag steps{.name = "steps", .value = "N", .help = ""};
  const ParsedArguments parsed = parse_arguments({"--steps", "3"}, {steps}, true);
  EXPECT_EQ(parsed.get("steps", ""), "3") << "a flag of the command comes first";
  EXPECT_TRUE(parsed.keys.empty());
}

TEST(Options, HiddenKeysArePrintedOnlyWhenSet) {
  EXPECT_EQ(from("").text.find("[test]"), std::string::npos);
  EXPECT_TRUE(from("test.all_reduce_delay = 1s").text.ends_with("\n[test]\nall_reduce_delay = 1s\n"));
  EXPECT_EQ(keys_help().find("--test."), std::string::npos);
  EXPECT_EQ(configuration_page().find("test.all_reduce_delay"), std::string::npos);
}

TEST(Options, CommandLineValuesThatAFileCannotHoldAreRefused) {
  EXPECT_NE(refusal("", {{"run.dir", {"a#b"}}}).find("cannot contain #"), std::string::npos);
}

TEST(Options, DocumentedPageIsTheGeneratedOne) {
  EXPECT_EQ(read_file(MILLRACE_SOURCE_DIR "/docs/reference/configuration.md"), configuration_page())
      << "renew it: millrace docs-configuration > docs/reference/configuration.md";
}

}  // namespace options_test
}  // namespace millrace::app
