// docs/configuration.md, generated from the table of keys.
#include "millrace/config/keys.hpp"
#include "millrace/config/options.hpp"

namespace millrace {
namespace {

const char* const opening = R"(# Configuration

This page is printed by `millrace docs-configuration`; a test compares the two.

    millrace train -c FILE [-c FILE...] [--section.key VALUE...]

A configuration is one or more INI files. Later files win over earlier ones, the command line wins over all.
`millrace train -c FILE --print-config` prints the result, resolved and ready to be run again; every run keeps it as
`config.cfg`.

    # a comment begins with # and ends with the line
    [train]
    epochs = 20
    global_batch = 256      # also written train.global_batch outside of a section

- A key may stand once in a file; lists and `model.layers` may be repeated. An unknown key, a value that does not
  fit or a key given twice ends the program with exit 2 and one line that names file, line and key. Keys are never
  guessed from a beginning.
- Lists are separated by blanks (numbers also by commas). A blank inside a path is written `\ `; on the command line
  each word is one path: `--data.train shards/train-*.h5`.
- Sizes: bytes, or with a unit `64MiB`, `512k` (k, M, G, T are powers of 1000; Ki, Mi, Gi, Ti of 1024).
- Durations: seconds, or with units `250ms`, `90s`, `10m`, `1h30m`, `2d`, or `01:30:00`.
- Switches: `on` or `off`. Quotes are not special.
- Relative paths are relative to the folder in which the program is started.
)";

const char* const closing = R"(
## Networks as text: model.layers

With `model.name = layers` the network is written one layer a line, in order. Each line takes the result of the line
above.

    [model]
    name = layers
    layers = conv 16 3 pad=same as=a
    layers = batchnorm
    layers = relu
    layers = conv 16 3 pad=same
    layers = batchnorm
    layers = add a
    layers = relu
    layers = globalpool
    layers = linear outputs

| line | options (default) | what |
|---|---|---|
| `conv CHANNELS [KERNEL]` | `stride=S` (1) `pad=P` or `pad=same` (0) `dilation=D` (1) `groups=G` (1) `bias=on` or `off` (off) | convolution in as many dimensions as the data has; KERNEL is `3`, `3x3`, `3x3x3` (1) |
| `batchnorm` | | batch normalisation with learned scale and shift |
| `relu`, `gelu`, `gelu_tanh`, `tanh` | | the function, element by element; gelu_tanh is gelu by its approximation with tanh |
| `linear FEATURES` or `linear outputs` | `bias=on` or `off` (on) | matrix product; `outputs` is the number of classes or of targets |
| `embedding WIDTH` | `vocabulary=V` (that of the data) | of samples that are tokens, and before all else: a learned row of WIDTH values for each token; `linear` behind it sees all of a window |
| `dropout P` | | in training, zero with probability P |
| `maxpool KERNEL`, `avgpool KERNEL` | `stride=S` (the kernel) `pad=P` (0) | pooling |
| `globalpool` | | average over all positions |
| `add NAME` | | sum with the result of that name |

Every line may end with `as=NAME`, which names its result, and `from=NAME`, which takes that result instead of the
line above's. `input` is the name of the normalised batch.

## Exit codes

| code | meaning | what a job script does |
|---|---|---|
| 0 | done | nothing |
| 75 | stopped on request, with a checkpoint | start the same command again: it goes on exactly |
| 2 | the configuration is wrong | mend it; the message names file, line and key |
| 3 | data or files cannot be read or written | mend them; the message names the file |
| 4 | diverged: the loss is not a number | lower the learning rate; the last good checkpoint is kept |
| 5 | communication failed or timed out | look at the host that the message names; start again |
| 1 | a defect of this program | report the message |

All ranks end with the same code. A failure on one rank ends the others within seconds.

## Stopping

`SIGUSR2`, `SIGTERM`, one `SIGINT`, a file `STOP` in `run.dir`, or the end of the job's time less `run.stop_margin`:
the step is finished, a checkpoint written, and the program ends with 75. The next start in that folder removes `STOP`.
A second `SIGINT` ends the process at once. mpirun passes `SIGUSR2` on to all ranks; after `SIGTERM` or Ctrl-C it kills
them within a second, too soon for a large checkpoint. So send USR2, or start through `scripts/run.sh RANKS PROGRAM...`,
which turns both into USR2, as `make run` does. (Open MPI's longer time-out, odls_base_sigkill_timeout, also makes Open
MPI 4 wait that long after every rank that ends with another code than 0, 75 too.)

    #SBATCH --signal=B:USR2@180

## Going on

Started again with the same `run.dir`, a run goes on from its newest whole checkpoint: bit for bit with the same ranks,
threads, libraries and keys. With other ranks, threads or precision it goes on with the same samples, and says so; so
with other keys, which it names. Another `train.global_batch` or other training files are taken from the start of an
epoch on; in the middle of one they are refused, as samples would be skipped or repeated.

## The run directory

| file | what |
|---|---|
| `config.cfg` | the resolved configuration |
| `run.json` | start, ranks, hosts, placement, device, libraries, data sets, environment; what `auto` stood for |
| `metrics.jsonl` | one object an optimizer step: step, epoch, samples, loss, lr, grad_norm, loss_scale, samples_per_second, phase times in ms, unread_samples (skipped by data.on_error) |
| `validation.jsonl` | one object an evaluation: step, epoch, samples, loss, accuracy, top5 |
| `summary.json` | at the end: started and pid of the start that it is of, as in `run.json`; status, steps, samples, unread_samples, valid_accuracy, valid_loss; of this start alone: session_steps, session_samples, seconds, samples_per_second, loss, the account of time (what `millrace predict` goes by, too), its verdict, the findings, and hints at what is worth a trial |
| `trace.json` | some steps of all ranks, span by span (log.profile_steps), for ui.perfetto.dev; of the newest start |
| `shares.jsonl` | with `train.balance`: from which step on each rank has how many micro-batches ([tuning](tuning.md#ranks-that-are-not-alike)) |
| `layers.json` | with `account.probe`: each operation's time beside its roofline |
| `report.html` | written by `millrace report` |
| `checkpoints/step-XXXXXXXX.h5` | weights, optimizer state, place in the data; HDF5, whole or not there |
| `checkpoints/latest` | the name of the newest |
| `checkpoints/best` | the name of the one with the best validation accuracy; written when an evaluation is better than all before, unless checkpoint.every is none; never removed as too old |
| `tensorboard/` | with log.tensorboard: events for TensorBoard, a file for each start |
| `STOP` | made by you: asks the run to stop |
)";

std::string code(const std::string& text) { return text.empty() ? "empty" : "`" + text + "`"; }

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != text.npos; at += 2) text.insert(at, "\\");
  return text;
}

}  // namespace

std::string configuration_page() {
  static const RunConfig defaults;
  std::string out = opening, group;
  for (const Key& key : keys()) {
    if (key.hidden) continue;
    if (key.group() != group) {
      group = key.group();
      out += "\n## [" + group + "] " + group_title(group) +
             "\n\n| key | value | default | what it does |\n|---|---|---|---|\n";
    }
    out += "| `" + key.name + "` | " + cell(key.value_format) + " | " + code(join_words(key, key.get(defaults))) +
           " | " + key.help + " |\n";
  }
  return out + closing;
}

}  // namespace millrace
