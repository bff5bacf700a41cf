"""Checks the documentation.

check_docs.py links ROOT
    Every relative link of every page names a file of the repository, and its anchor a heading of that page.
check_docs.py commands ROOT MILLRACE [PAGE...]
    The ```sh blocks of each page run in order, in a copy of the repository in which build/millrace is MILLRACE
    and data/fashion-mnist is packed. Exits with 77 when Fashion-MNIST or h5py is not installed.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\w*)")
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def pages(root):
    """All pages, without those in hidden folders and in folders that the build and the runs make."""
    made = re.compile(r"\.|build|data$|runs$")
    return sorted(p for p in root.rglob("*.md") if not any(made.match(part) for part in p.relative_to(root).parts))


def prose_and_blocks(page):
    """The lines outside of fenced blocks, and the blocks as (language, text)."""
    prose, blocks, fence = [], [], None
    for line in page.read_text().splitlines():
        match = FENCE.match(line)
        if fence is None and match:
            fence, language, text = match.group(1), match.group(2), []
        elif fence is not None and line.strip() == fence:
            blocks.append((language, "\n".join(text)))
            fence = None
        elif fence is not None:
            text.append(line)
        else:
            prose.append(line)
    if fence is not None:
        raise SystemExit(f"{page}: a fenced block is not closed")
    return prose, blocks


def anchors(page):
    """The anchors that GitHub makes of a page's headings."""
    found = set()
    for line in prose_and_blocks(page)[0]:
        if line.startswith("#"):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


def check_links(root):
    problems, links = [], 0
    for page in pages(root):
        text = re.sub(r"`[^`]*`", "", "\n".join(prose_and_blocks(page)[0]))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"\w+:", target):
                continue
            links += 1
            name, _, anchor = target.partition("#")
            other = (page.parent / name).resolve() if name else page
            where = f"{page.relative_to(root)}: the link {target}"
            if not other.exists():
                problems.append(f"{where} names no file")
            elif anchor and other.suffix == ".md" and anchor not in anchors(other):
                problems.append(f"{where} names no heading of {other.name}")
    print(*problems, f"{links} links checked", sep="\n")
    return 1 if problems or links < 20 else 0


def has_h5py(python):
    return subprocess.run([python, "-c", "import h5py"], capture_output=True).returncode == 0


def prepare(root, millrace, folder):
    """A copy of the repository with the executable, the data, and a python3 that has h5py first in PATH."""
    shutil.copytree(root, folder / "millrace", ignore=shutil.ignore_patterns(".git", "build*", "data", "runs"))
    copy = folder / "millrace"
    (copy / "build").mkdir()
    (copy / "build/millrace").symlink_to(millrace)
    (folder / "bin").mkdir()
    (folder / "bin/python3").symlink_to(next(p for p in ("/usr/bin/python3", sys.executable) if has_h5py(p)))
    return copy


def run_page(page, copy, environment):
    blocks = [text for language, text in prose_and_blocks(page)[1] if language == "sh"]
    for text in blocks:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], cwd=copy, env=environment, capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            print(f"{page.name}: these commands end with {done.returncode}:\n{text}\n--- output:")
            print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
            return False
    print(f"{page.name}: {len(blocks)} blocks ran")
    return True


def check_commands(root, millrace, wanted):
    if not FASHION_MNIST.exists() or not any(map(has_h5py, ("/usr/bin/python3", sys.executable))):
        print("skipped: needs the packages dataset-fashion-mnist and python3-h5py")
        return 77
    chosen = [root / name for name in wanted] or [root / "docs/tutorial.md", *sorted((root / "docs/how-to").glob("*.md"))]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        packed = folder / "packed"
        environment = {**os.environ, **MPI, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        for prefix, name, options in (("train", "train", ()), ("valid", "t10k", ("--no-shuffle",))):
            files = [f"{FASHION_MNIST}/{name}-{kind}.gz" for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
            subprocess.run(
                [millrace, "pack", "--x", files[0], "--y", files[1], "--out", packed, "--prefix", prefix, *options],
                env=environment, check=True, capture_output=True,
            )
        good = True
        for number, page in enumerate(chosen):
            (folder / str(number)).mkdir()
            copy = prepare(root, millrace, folder / str(number))
            (copy / "data").mkdir()
            (copy / "data/fashion-mnist").symlink_to(packed)
            page_environment = {**environment, "PATH": f"{folder}/{number}/bin:{os.environ['PATH']}"}
            good = run_page(page, copy, page_environment) and good
    return 0 if good else 1


if __name__ == "__main__":
    mode, root = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    sys.exit(check_links(root) if mode == "links" else check_commands(root, pathlib.Path(sys.argv[3]).resolve(), sys.argv[4:]))
