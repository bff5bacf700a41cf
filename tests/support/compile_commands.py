"""The commands that compile a source file, from compile_commands.json of a build folder."""
import collections
import json
import pathlib
import re
import shlex

# unity: the file that includes the source together with others (MILLRACE_UNITY), which is what the command compiles;
# or None. words: the command.
Command = collections.namedtuple("Command", "source unity words directory output")


def sources_of(file):
    """The source files that a unity file includes."""
    return [pathlib.Path(name) for name in re.findall(r'^#include "(/.*\.(?:cpp|cu))"$', file.read_text(), re.M)]


def compile_commands(build):
    for entry in json.loads((pathlib.Path(build) / "compile_commands.json").read_text()):
        file, words = pathlib.Path(entry["file"]), shlex.split(entry["command"])
        output = words[words.index("-o") + 1]
        unity = file if file.parent.name == "Unity" else None
        for source in sources_of(file) if unity else [file]:
            yield Command(source.resolve(), unity, words, entry["directory"], output)
