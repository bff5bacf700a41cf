"""The parser of prometheus_client accepts the Prometheus file of a run. Usage: prometheus_test.py FILE"""
import sys

from prometheus_client.parser import text_string_to_metric_families

families = {f.name: f for f in text_string_to_metric_families(open(sys.argv[1]).read())}
ok = len(families) >= 20
for name, family in families.items():
    ok = ok and name.startswith("millrace_") and family.documentation and family.type in ("gauge", "counter") and family.samples
    for sample in family.samples:  # the parser removes the suffix _total from the family name of a counter
        ok = ok and sample.name == name + ("_total" if family.type == "counter" else "") and {"run", "host"} <= set(sample.labels)
        ok = ok and sample.timestamp is None
value = lambda name: families[name].samples[0].value
ok = ok and (value("millrace_run_active"), value("millrace_run_exit_code"), value("millrace_step")) == (0, 0, 100)
ok = ok and len(families["millrace_phase_seconds"].samples) == 10
if not ok:
    print("FAILED: expected documented gauges and counters with the labels run and host, and a finished run of 100 steps; got")
    print(open(sys.argv[1]).read(), families)
sys.exit(not ok)
