"""Strict checks of the files that `millrace report` and log.profile_steps write.

Usage: report_check.py page FILE | trace FILE RANKS STEPS"""
import html.parser
import json
import sys
import xml.etree.ElementTree

VOID = {"meta", "link", "br", "hr", "img"}


class Page(html.parser.HTMLParser):
    """Elements are closed in order, no attribute appears twice, and nothing is loaded from outside."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.count = [], [], {}

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        names = [name for name, _ in attributes]
        if len(set(names)) != len(names):
            self.problems.append(f"<{tag}> has the same attribute twice")
        for name, value in attributes:
            if name in ("src", "href") or name.startswith("on") or "url(" in (value or ""):
                self.problems.append(f"<{tag} {name}={value}> loads something from outside the page")
            if name == "d" and ("nan" in value or "inf" in value):
                self.problems.append("a path contains nan or inf: " + value[:80])
        if tag in ("script", "link", "img", "iframe"):
            self.problems.append(f"<{tag}> is not allowed")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self.open[-1:]} at {self.getpos()}")
        else:
            self.open.pop()


def check_page(path):
    text = open(path, encoding="utf-8").read()
    assert text.startswith("<!DOCTYPE html>"), "no doctype"
    page = Page()
    page.feed(text)
    page.close()
    assert not page.problems, page.problems[:5]
    assert not page.open, page.open
    assert page.count.get("svg", 0) >= 4, page.count
    for picture in text.split("<svg")[1:]:  # each is valid XML
        xml.etree.ElementTree.fromstring("<svg" + picture.split("</svg>")[0] + "</svg>")
    body = text.split("</style>")[1]
    for word in ("nan", "inf", "null", "@media"):
        assert ">" + word not in body.lower() and " " + word + " " not in body.lower(), word
    print(len(text), "bytes,", page.count["svg"], "pictures")


def check_trace(path, ranks, steps):
    trace = json.load(open(path, encoding="utf-8"))
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"]
             if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {e["pid"] for e in spans} == set(range(ranks)), "expected spans of all ranks"
    assert len(trace["otherData"]["clocks"]) == ranks
    tick = 0.002  # us: times are rounded to 0.001
    for key in {(e["pid"], e["tid"]) for e in spans}:
        assert key in lanes, key
        open_ends = []
        for e in sorted((e for e in spans if (e["pid"], e["tid"]) == key), key=lambda e: (e["ts"], -e["dur"])):
            assert e["ts"] >= 0 and e["dur"] >= 0, e
            while open_ends and open_ends[-1] <= e["ts"] + tick:
                open_ends.pop()
            assert not open_ends or e["ts"] + e["dur"] <= open_ends[-1] + tick, (lanes[key], e)
            open_ends.append(e["ts"] + e["dur"])
    for rank in range(ranks):
        mine = [e for e in spans if e["pid"] == rank]
        assert len({e["tid"] for e in mine if e["cat"] == "step"}) == 1, "the steps of a rank are on several threads"
        whole = [e for e in mine if e["name"].startswith("step ")]
        assert len(whole) == steps, (rank, len(whole))
        for step in whole:
            inside = [e for e in mine if e["cat"] == "step" and e is not step and
                      step["ts"] - tick <= e["ts"] <= step["ts"] + step["dur"] + tick]
            names = {e["name"] for e in inside}
            assert {"data_wait", "forward", "backward", "communication", "optimizer"} <= names, names
        if ranks > 1:
            sums = [e for e in mine if e["cat"] == "sums"]
            assert len([e for e in sums if e["name"] == "bucket 0"]) == steps, "expected one all-reduce of bucket 0 per step"
            assert all(whole[0]["ts"] - tick <= e["ts"] for e in sums), "an all-reduce began before the first step"
        # In fewer steps the loader may have nothing to do: it has filled all slots before.
        assert steps < 4 or any(e["cat"].startswith("loader") for e in mine), "no spans of the loader"
    for number in range(steps):  # the clocks of the ranks agree: a step is at the same time on all of them
        same = [[e for e in spans if e["pid"] == r and e["name"].startswith("step ")][number] for r in range(ranks)]
        assert max(e["ts"] for e in same) < min(e["ts"] + e["dur"] for e in same) or ranks == 1, f"step {number} is not at the same time on all ranks"
    print(len(spans), "spans of", ranks, "ranks")


if __name__ == "__main__":
    if sys.argv[1] == "page":
        check_page(sys.argv[2])
    else:
        check_trace(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
