"""The application object that every department registers its handlers with."""

from pathlib import Path

from owlclaw import OwlClaw

ROOT = Path(__file__).resolve().parent.parent

app = OwlClaw("retail")
# Absolute, so that the application runs from any working directory.
app.mount_skills(str(ROOT / "skills"))
