"""``python -m weft``: the ``weft`` command that was installed with this package, with the same words."""

import os
import sys
import sysconfig


def find():
    """Where ``pip`` put the command: among the programs of this Python or of this user, or beside the package."""
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", "posix_user"),
        # `pip install --target FOLDER`, and `--prefix FOLDER`.
        os.path.join(here, "..", "bin"),
        os.path.join(here, "..", "..", "..", "..", "bin"),
    ]
    for folder in folders:
        path = os.path.join(folder, "weft")
        if os.access(path, os.X_OK):
            return os.path.normpath(path)
    sys.exit(
        "weft: the command `weft` was not installed with this package; `pip install weft` brings both. Looked in "
        + ", ".join(os.path.normpath(folder) for folder in folders)
    )


if __name__ == "__main__":
    command = find()
    os.execv(command, [command, *sys.argv[1:]])
