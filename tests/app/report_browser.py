"""A headless browser shows reports correctly, at 320, 360 and 1280 px, light and dark, and on paper: the console has no
messages, nothing is wider than the page, labels do not overlap, and the picture is not empty.

Usage: report_browser.py CHROMIUM PAGE...      MILLRACE_SHOTS=FOLDER keeps the pictures."""
import os
import re
import subprocess
import sys
import tempfile

PROBE = """<script>addEventListener("load", () => { const d = document.documentElement, wrong = [];
for (const e of document.querySelectorAll("body *")) { const b = e.getBoundingClientRect();
  if (b.right > d.clientWidth + 1 && b.width > 0 && !e.closest(".scroll, pre, details:not([open]), .area svg")) wrong.push(e.className || e.tagName); }
if (d.clientWidth < 500) for (const e of document.querySelectorAll(".scroll, pre")) if (e.scrollWidth > e.clientWidth + 1) wrong.push("hidden columns of " + e.className + e.firstChild.className);
for (const area of document.querySelectorAll(".area, .head .track, .foot .track")) for (const kind of [".x", ".y", ".e", "span:not(.x, .y, .e)"]) { let before = null;
  const all = [...area.querySelectorAll(kind)].map(e => e.getBoundingClientRect()).sort((a, b) => kind == ".y" ? a.top - b.top : a.left - b.left);
  for (const b of all) { if (before && (kind == ".y" ? b.top < before.bottom : b.left < before.right)) wrong.push("labels of " + kind); before = b; } }
document.body.dataset.probe = JSON.stringify({scroll: d.scrollWidth, client: d.clientWidth, wrong: wrong.slice(0, 8)}); });</script>"""


def chromium(browser, folder, *arguments):
    done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--hide-scrollbars", "--force-device-scale-factor=1", "--enable-logging=stderr", "--v=0",
                           "--user-data-dir=" + folder, *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    assert not console, console
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-500:]
    return done.stdout.decode(errors="replace")


def look(browser, page, shots, work):
    name = os.path.basename(page).rsplit(".", 1)[0]
    text = open(page, encoding="utf-8").read()
    for width in (320, 360, 1280):
        # A headless window is at least 500 px wide, so the narrow page is shown in a frame.
        probe = os.path.join(work, "probe.html")
        open(probe, "w", encoding="utf-8").write(text.replace("</body>", PROBE + "</body>"))
        frame = os.path.join(work, "frame.html")
        open(frame, "w", encoding="utf-8").write(
            f'<!DOCTYPE html><body style="margin:0"><iframe src="probe.html" style="border:0;width:{width}px;height:900px"></iframe>'
            '<script>addEventListener("load", () => document.body.dataset.found = document.querySelector("iframe").contentDocument.body.dataset.probe)</script>')
        dom = chromium(browser, work, "--allow-file-access-from-files", f"--window-size={max(width, 500)},900", "--virtual-time-budget=3000",
                       "--dump-dom", "file://" + frame)
        found = re.search(r'data-found="([^"]*)"', dom)
        assert found, "the page did not load: " + dom[-300:]
        found = found.group(1).replace("&quot;", '"')
        assert f'"scroll":{width},"client":{width},"wrong":[]' in found, (name, width, found)
        if width == 320: continue  # checked without a screenshot
        for look_, flags in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
            shot = os.path.join(shots, f"{name}-{width}-{look_}.png")
            chromium(browser, work, *flags, f"--window-size={max(width, 500)},{4200 if width < 500 else 3000}",
                     "--allow-file-access-from-files", "--screenshot=" + shot,
                     "file://" + (frame_of(work, width) if width < 500 else os.path.abspath(page)))
            assert os.path.getsize(shot) > 20000, shot
        light, dark = (open(os.path.join(shots, f"{name}-{width}-{l}.png"), "rb").read() for l in ("light", "dark"))
        assert light != dark, "the dark page looks like the light one"
    paper = os.path.join(shots, name + ".pdf")
    chromium(browser, work, "--no-pdf-header-footer", "--print-to-pdf=" + paper, "file://" + os.path.abspath(page))
    assert open(paper, "rb").read(5) == b"%PDF-" and os.path.getsize(paper) > 20000
    print(name, "looks right")


def frame_of(work, width):
    path = os.path.join(work, "narrow.html")
    open(path, "w", encoding="utf-8").write(
        '<!DOCTYPE html><html><head><meta name="color-scheme" content="light dark"></head><body style="margin:0">'
        f'<iframe src="probe.html" style="border:0;width:{width}px;height:4200px"></iframe>')
    return path


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        shots = os.environ.get("MILLRACE_SHOTS") or work
        for page in sys.argv[2:]:
            look(sys.argv[1], page, shots, work)
