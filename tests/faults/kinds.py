"""The list of kinds of faults. A kind is a function of a Trial."""

KINDS = {}


class Kind:
    def __init__(self, name, run, promise, needs_root):
        self.name = name
        self.run = run
        self.promise = promise
        self.needs_root = needs_root


def kind(promise, needs_root=False):
    """Registers a function under its name. `promise`: how a training must end, for the documentation."""

    def register(function):
        name = function.__name__.replace("_", "-")
        KINDS[name] = Kind(name, function, promise, needs_root)
        return function

    return register
