#!/bin/bash
# The pages of `millrace report` and the traces of log.profile_steps for finished, killed and damaged runs.
# page: report_check.py checks them. browser: a headless browser shows the pages.
# Usage: report_test.sh MILLRACE MPIEXEC page|browser
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
source "$root/tests/support/python.sh"
find_python html.parser json

conv_model >net.cfg
cat >>net.cfg <<'CFG'
[run]
threads = 1
[data]
train = synthetic:images:rows=600,shape=10x10x3,classes=4
valid = synthetic:images:rows=60,shape=10x10x3,classes=4,seed=9
workers = 2
[train]
epochs = 3
global_batch = 24
micro_batch = 6
CFG
expect_exit 0 train 2 whole
expect_exit 0 train 1 'two <b>&' --optim.lr 0.02 --log.profile_steps 2

# refused CODE PATTERN ARGUMENT...: report fails with one line of error that matches.
refused() {
  expect_exit "$1" "$millrace" report "${@:3}"
  expect_lines 1 error: err
  expect_line "$2" err
}
page() { expect_exit 0 "$millrace" report "$@"; }
# check page FILE | trace FILE RANKS STEPS
check() { expect_exit 0 "$python" "$tests/report_check.py" "$@"; }

# long_layers: prints a layers.json whose second operation was faster than the measured peaks.
long_layers() {
  local name
  name=$(printf 'transformer.blocks.%d.attention.' 1 2 3 4)
  printf '{"operations":[{"name":"%sprojection","implementation":"%skernel<float>","forward_ms":2,"backward_ms":3,"least_ms":4},' "$name" "$name"
  printf '{"name":"norm","implementation":"threads","forward_ms":1,"backward_ms":1,"least_ms":3}]}\n'
}

case_page() {
  page whole
  check page whole/report.html
  expect_texts whole/report.html Loss Accuracy Throughput "Rank by rank" "Timeline of some steps" "All-reduces" Loader "finished" "step 75 of 75" \
    "speed of light" "The step at the speed of light" "in the traced steps"
  page whole  # replaces the page
  # Of few classes any label is among the five most probable: the curve would only stretch the axis.
  cp -r whole few
  sed -i 's/"top5":[0-9.e-]*/"top5":0.75/' few/validation.jsonl
  page few
  expect_texts few/report.html "validation, top-5"
  sed -i 's/"top5":[0-9.e-]*/"top5":1/' few/validation.jsonl
  page few
  expect_no_line "validation, top-5" few/report.html
  echo mine >mine.html
  refused 3 'mine\.html exists and was not written by millrace' whole --out mine.html
  expect_equal "a file of another program" mine "$(cat mine.html)"
  cp -r whole hinted
  "$python" - hinted/summary.json <<'PY'
import json, sys
summary = json.load(open(sys.argv[1]))
summary["hints"] = [{"advice": "run.precision fp32 -> bf16", "evidence": "bf16 < fp32", "caution": "watch the loss"}]
json.dump(summary, open(sys.argv[1], "w"))
PY
  page hinted
  "$python" - hinted <<'PY'  # as an older version wrote it
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
for name in ("summary.json", "run.json"):
    old = json.loads((folder / name).read_text())
    del old["speed_of_light"]
    (folder / name).write_text(json.dumps(old))
lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
(folder / "metrics.jsonl").write_text("".join(json.dumps({k: v for k, v in line.items() if k != "speed_of_light"}) + "\n" for line in lines))
PY
  page hinted
  expect_no_line "speed of light" hinted/report.html
  expect_texts hinted/report.html "worth a trial" "run.precision fp32 → bf16" "bf16 &lt; fp32" "<em>watch the loss</em>"
  page whole 'two <b>&' --out both.html
  check page both.html
  expect_texts both.html "2 runs, side by side" "optim.lr" "two &lt;b&gt;&amp;"
  check trace whole/trace.json 2 4
  check trace 'two <b>&/trace.json' 1 2
  expect_lines 3 . whole/validation.jsonl  # one for each evaluation
  cp whole/validation.jsonl before
  expect_exit 0 train 2 whole  # a finished run is evaluated again, but no second line is written
  expect_same_files before whole/validation.jsonl

  # Names are not cut, and no operation takes less than its bound.
  cp -r whole layered
  long_layers >layered/layers.json
  page layered
  expect_texts layered/report.html ".4.attention.projection</code>" ".4.attention.kernel&lt;float&gt;<" "</b>80 %</span>" "<span>above</span>"
  expect_equal "shares above 100 %" 0 "$(grep -cE '[^0-9.](1[0-9][1-9]|[2-9][0-9][0-9]) %' layered/report.html)"

  # A run of three starts: their times add up, and the page lists the keys that each of them changed.
  expect_exit 75 train 1 resumed --run.walltime 1ms --run.stop_margin 0s
  expect_exit 75 train 1 resumed --run.walltime 1ms --run.stop_margin 0s --optim.lr 0.02
  expect_exit 0 train 1 resumed --lr 0.03
  page resumed
  check page resumed/report.html
  expect_texts resumed/report.html "time of all starts" "<figcaption>Starts" "optim.lr 0.1 → 0.02" "optim.lr 0.02 → 0.03" "run.walltime 0.001s → auto"
  "$python" - resumed/run.json resumed/report.html <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
assert [start["resumed_at_step"] for start in run["earlier"]] == [0, 1], run["earlier"]
assert all(start["seconds"] > 0 for start in run["earlier"]), run["earlier"]
assert "optim.lr 0.02 -> 0.03" in run["changed"], run["changed"]
PY
  expect_exit 0 train 1 resumed --run.resume never
  page resumed
  expect_equal "the starts of a new run" 0 "$(grep -c '<figcaption>Starts' resumed/report.html)"

  # A killed run has no summary, and the last line of its metrics is incomplete.
  cp -r whole killed
  rm killed/summary.json killed/trace.json killed/report.html
  truncate -s -20 killed/metrics.jsonl
  page killed
  check page killed/report.html
  expect_texts killed/report.html "interrupted" "step 74 of 75"
  : >killed/metrics.jsonl
  page killed --out none.html
  expect_texts none.html "No step has been written yet"
  # flock waits for the command, so the owner of the lock is alive. /proc/locks omits locks of processes that have ended
  # where processes have a name space of their own, as in containers.
  expect_exit 0 flock killed/lock "$millrace" report killed --out going.html
  expect_texts going.html '"state busy">running<'

  cp -r whole damaged
  rm damaged/report.html
  echo '{"step":' >damaged/run.json
  refused 3 'damaged/run\.json' damaged
  cp whole/run.json damaged
  sed -i '3s/.*/{"step":3,,}/' damaged/metrics.jsonl
  refused 3 'damaged/metrics\.jsonl:3' damaged
  cp whole/metrics.jsonl damaged
  sed -i 's/"ranks"/"rinks"/' damaged/summary.json
  refused 3 'damaged/summary\.json' damaged
  cp whole/summary.json damaged
  echo '[' >damaged/trace.json
  refused 3 'damaged/trace\.json' damaged
  echo '{"operations":[{"name":"conv1"}]}' >damaged/layers.json
  refused 3 'damaged/layers\.json' damaged
  rm damaged/config.cfg
  refused 3 'damaged/config\.cfg.*missing' damaged
  refused 3 nowhere nowhere
  refused 2 run --overwrite
  expect_no_file damaged/report.html
}

case_browser() {
  local browser
  browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "no chromium (package chromium)"
  page whole
  page whole 'two <b>&' --out both.html
  expect_exit 75 train 2 layered --run.walltime 1ms --run.stop_margin 0s
  expect_exit 0 train 2 layered --optim.lr 0.02
  long_layers >layered/layers.json
  page layered
  expect_exit 0 "$python" "$tests/report_browser.py" "$browser" whole/report.html both.html layered/report.html
}

run_case "$3"
