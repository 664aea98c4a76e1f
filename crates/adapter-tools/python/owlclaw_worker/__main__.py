"""Start of a launcher: read what the server said, and go."""

import os
import sys


# Started by this file's name: by `-m`, modules of the working directory would come before those of Python itself.
_HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]


def main():
    """Run a launcher until its server is done with it. Returns the exit status."""
    # Everything is imported before the application's directories come first on the path.
    from owlclaw_worker import launcher

    package_parent = os.path.dirname(_HERE)
    given = {}
    for name in ("SOCKET", "NONCE", "APP", "ROOT", "SEARCH", "START", "MEMORY", "THREADS", "PATIENCE"):
        given[name] = os.environ.pop("OWLCLAW_WORKER_" + name, None)
    missing = ["OWLCLAW_WORKER_" + name for name in ("SOCKET", "NONCE", "APP", "ROOT", "START") if not given[name]]
    if missing:
        print("this is started by owlclaw-mcp, not by hand: %s is missing" % ", ".join(missing), file=sys.stderr)
        return 2
    _forget_path(package_parent)
    memory = int(given["MEMORY"]) if given["MEMORY"] else None
    threads = int(given["THREADS"] or 1)
    patience = float(given["PATIENCE"] or 0)
    asked = [given[name] for name in ("SOCKET", "NONCE", "APP", "ROOT", "START")]
    search = [entry for entry in (given["SEARCH"] or "").split(os.pathsep) if entry]
    return launcher.run(launcher.Settings(*asked, memory, threads, patience, search))


def _forget_path(package_parent):
    """Python processes that handlers start are none of ours: take our directory out of PYTHONPATH."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package_parent in entries:
        entries.remove(package_parent)
        if any(entries):
            os.environ["PYTHONPATH"] = os.pathsep.join(entries)
        else:
            del os.environ["PYTHONPATH"]


if __name__ == "__main__":
    sys.exit(main())
