#!/bin/bash
# Pages and traces of real runs: report_test.sh MILLRACE MPIEXEC FOLDER_OF_THIS page|browser. 77: skipped, with the reason.
set -u
millrace=$1
mpiexec=$2
here=$(readlink -f "$3")
for python in python3 /usr/bin/python3 none; do $python -c 'import html.parser, json' 2>/dev/null && break; done
[ $python != none ] || { echo "skipped: no python3 to check the page with"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; failures=$((failures + 1)); }

cat >net.cfg <<'CFG'
[run]
threads = 1
[data]
train = synthetic:images:rows=600,shape=10x10x3,classes=4
valid = synthetic:images:rows=60,shape=10x10x3,classes=4,seed=9
workers = 2
[model]
name = layers
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = relu
layers = globalpool
layers = linear outputs
[train]
epochs = 3
global_batch = 24
micro_batch = 6
CFG
train() {
  "$mpiexec" --bind-to none -n "$1" "$millrace" train -c net.cfg --run.dir "$2" "${@:3}" >>log 2>&1 || complain "the run $2 failed: $(tail -2 log)"
}
# refused CODE TEXT RUN...: one line that says so.
refused() {
  "$millrace" report "${@:3}" >out 2>err
  [ $? -eq "$1" ] || complain "report ${*:3} did not end with $1"
  [ "$(grep -c 'error:' err)" -eq 1 ] && grep -qF -- "$2" err || complain "report ${*:3} did not say '$2' once: $(cat err)"
}
page() { "$millrace" report "$@" >out 2>err || complain "report $* failed: $(cat err)"; }
# holds PAGE TEXT...
holds() {
  for text in "${@:2}"; do grep -qF -- "$text" "$1" || complain "$1 does not hold '$text'"; done
}

train 2 whole
train 1 'two <b>&' --optim.lr 0.02 --log.profile_steps 2

if [ "$4" = page ]; then
  page whole
  $python "$here/report_check.py" page whole/report.html || complain "the page of one run"
  holds whole/report.html Loss Accuracy Throughput "Rank by rank" "Timeline of some steps" "All-reduces" Loader "finished" "step 75 of 75"
  refused 3 "whole/report.html exists already. --overwrite replaces it" whole
  page whole --overwrite
  cp -r whole hinted
  $python - hinted/summary.json <<'PY' || complain "no hint was planted"
import json, sys
summary = json.load(open(sys.argv[1]))
summary["hints"] = [{"advice": "run.precision fp32 -> bf16", "evidence": "bf16 < fp32", "caution": "watch the loss"}]
json.dump(summary, open(sys.argv[1], "w"))
PY
  page hinted --overwrite
  holds hinted/report.html "worth a trial" "run.precision fp32 → bf16" "bf16 &lt; fp32" "<em>watch the loss</em>"
  page whole 'two <b>&' --out both.html
  $python "$here/report_check.py" page both.html || complain "the page of two runs"
  holds both.html "2 runs, side by side" "optim.lr" "two &lt;b&gt;&amp;"
  $python "$here/report_check.py" trace whole/trace.json 2 4 || complain "the trace of two ranks"
  $python "$here/report_check.py" trace 'two <b>&/trace.json' 1 2 || complain "the trace of one rank"
  [ "$(wc -l <whole/validation.jsonl)" -eq 3 ] || complain "validation.jsonl has not a line for each evaluation"
  cp whole/validation.jsonl before
  train 2 whole  # it is finished: evaluated again, but written down once
  cmp before whole/validation.jsonl || complain "an evaluation was written twice"

  # A killed run: no summary, and half a line.
  cp -r whole killed
  rm killed/summary.json killed/trace.json killed/report.html
  head -c -20 killed/metrics.jsonl >part && mv part killed/metrics.jsonl
  page killed
  $python "$here/report_check.py" page killed/report.html || complain "the page of a killed run"
  holds killed/report.html "interrupted" "step 74 of 75"
  : >killed/metrics.jsonl
  page killed --out none.html
  holds none.html "No step has been written yet"
  (flock 9 && page killed --out going.html) 9>>killed/lock
  holds going.html '"state busy">running<'

  cp -r whole damaged
  rm damaged/report.html
  echo '{"step":' >damaged/run.json
  refused 3 "damaged/run.json is damaged" damaged
  cp whole/run.json damaged && sed -i '3s/.*/{"step":3,,}/' damaged/metrics.jsonl
  refused 3 "damaged/metrics.jsonl:3: this is not the line of a step" damaged
  cp whole/metrics.jsonl damaged && sed -i 's/"ranks"/"rinks"/' damaged/summary.json
  refused 3 "damaged/summary.json is damaged" damaged
  cp whole/summary.json damaged && echo '[' >damaged/trace.json
  refused 3 "damaged/trace.json is damaged" damaged
  echo '{"operations":[{"name":"conv1"}]}' >damaged/layers.json
  refused 3 "damaged/layers.json is damaged" damaged
  rm damaged/config.cfg
  refused 3 "damaged/config.cfg is missing" damaged
  refused 3 "nowhere is not a folder" nowhere
  refused 2 "no run given" --overwrite
  [ -e damaged/report.html ] && complain "a page was written of a damaged run"
fi

if [ "$4" = browser ]; then
  for browser in chromium chromium-browser google-chrome none; do command -v $browser >/dev/null && break; done
  [ $browser != none ] || { echo "skipped: no chromium (package chromium)"; exit 77; }
  page whole
  page whole 'two <b>&' --out both.html
  $python "$here/report_browser.py" "$browser" whole/report.html both.html || complain "in a browser"
fi
[ $failures -eq 0 ]
