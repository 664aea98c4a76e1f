"""Start of a launcher: read what the server said, and go."""

import os
import sys


def main():
    """Run a launcher until its server is done with it. Returns the exit status."""
    # Everything is imported before the application's directories come first on the path.
    from . import launcher, serve

    package_parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    settings = {}
    for name in ("SOCKET", "NONCE", "APP", "ROOT", "PARENT", "START", "MEMORY"):
        settings[name.lower()] = os.environ.pop("OWLCLAW_WORKER_" + name, None)
    missing = [name for name in ("socket", "nonce", "app", "root") if not settings[name]]
    if missing:
        names = ", ".join("OWLCLAW_WORKER_" + name.upper() for name in missing)
        print("this is started by owlclaw-mcp, not by hand: %s is missing" % names, file=sys.stderr)
        return 2
    _forget_path(package_parent)
    if settings["start"]:
        memory = settings["memory"]
        return launcher.run(
            launcher.Settings(
                settings["socket"],
                settings["nonce"],
                settings["app"],
                settings["root"],
                settings["start"],
                int(memory) if memory else None,
            )
        )
    return serve.run(settings["socket"], settings["nonce"], settings["app"], settings["root"], settings["parent"])


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
