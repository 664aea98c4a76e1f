"""A bank that writes down what it has done, so that it can be counted."""

from pathlib import Path

from owlclaw import OwlClaw

app = OwlClaw("bank")
app.mount_skills(str(Path(__file__).with_name("skills")))


def _write_down(line: str) -> None:
    with Path(__file__).with_name("done.txt").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@app.handler("pay")
def pay(to: str, amount: int) -> dict:
    """Pays somebody."""
    _write_down(f"pay {to} {amount}")
    return {"paid": amount, "to": to}


@app.handler("wire")
def wire(to: str, amount: int) -> dict:
    """Pays somebody at another bank."""
    _write_down(f"wire {to} {amount}")
    return {"paid": amount, "to": to}


@app.handler("note")
def note(text: str) -> dict:
    """Notes something."""
    _write_down(f"note {text}")
    return {"noted": text}
