"""Docstrings: the prose, and what is said about each parameter.

Google, NumPy and reST conventions, and the Chinese one (参数：, 返回：), told apart by what is found, not
by asking: one docstring may mix them.
"""

import inspect
import re
import typing


class Docstring(typing.NamedTuple):
    """`prose` is the text without its parameter sections; `parameters` maps names to descriptions."""

    prose: str
    parameters: typing.Dict[str, str]


_PARAMETER_TITLES = {
    "args",
    "arguments",
    "parameters",
    "params",
    "keyword args",
    "keyword arguments",
    "other parameters",
    "attributes",
    "参数",
    "参数说明",
    "參數",
    "输入参数",
}
_OTHER_TITLES = {
    "returns",
    "return",
    "yields",
    "raises",
    "raise",
    "example",
    "examples",
    "note",
    "notes",
    "see also",
    "references",
    "warning",
    "warnings",
    "返回",
    "返回值",
    "返回说明",
    "回傳",
    "异常",
    "抛出",
    "示例",
    "例子",
    "说明",
    "注意",
    "备注",
}

_TITLE = re.compile(r"^(\s*)([A-Za-z一-鿿][A-Za-z 一-鿿]*?)\s*[:：]\s*$")
_UNDERLINE = re.compile(r"^\s*(-{3,}|={3,})\s*$")
# `name: text`, `name (int, optional): text`, `name（整数）：text`, `- name: text`, `*name`, "`name`", `name - text`
_ENTRY = re.compile(
    r"^(\s*)(?:[-*•+]\s+)?`{0,2}\*{0,2}([^\W\d]\w*)`{0,2}\s*"
    r"(?:[(（]([^()（）]*(?:\([^()]*\)[^()]*)*)[)）])?\s*"
    r"(?:[:：]|\s[-–—]\s)\s*(.*)$"
)
_NUMPY_ENTRY = re.compile(r"^(\s*)(\*{0,2}[^\W\d]\w*(?:\s*,\s*\*{0,2}[^\W\d]\w*)*)\s*(?::.*)?$")
_FIELD = re.compile(
    r"^\s*[:@](param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception|yields?|ytype)\b"
    r"\s*([^:：]*)[:：]\s*(.*)$"
)


def parse(text, names):
    """Parse a docstring. Only parameters in `names` are reported."""
    if not text:
        return Docstring("", {})
    return _Parser(inspect.cleandoc(text).splitlines(), set(names)).parse()


class _Parser:
    def __init__(self, lines, names):
        self._lines = lines
        self._names = names
        self._at = 0
        self._prose = []
        self._found = {}

    def parse(self):
        while self._at < len(self._lines):
            line = self._lines[self._at]
            title = _TITLE.match(line)
            if self._numpy_title() is not None:
                self._numpy_section()
            elif title is not None and title.group(2).lower() in _PARAMETER_TITLES and self._is_section(title):
                self._section(len(title.group(1)))
            elif _FIELD.match(line):
                self._field()
            else:
                self._prose.append(line)
                self._at += 1
        prose = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in self._prose)).strip()
        parameters = {name: text for name, text in self._found.items() if name in self._names and text}
        return Docstring(prose, parameters)

    def _indent(self, line):
        return len(line) - len(line.lstrip())

    def _numpy_title(self):
        """The title at this line, if it is an underlined one that announces parameters."""
        if self._at + 1 >= len(self._lines) or not _UNDERLINE.match(self._lines[self._at + 1]):
            return None
        title = self._lines[self._at].strip().lower()
        return title if title in _PARAMETER_TITLES else None

    def _starts_section(self, at):
        line = self._lines[at]
        title = _TITLE.match(line)
        if title is not None and title.group(2).lower() in _PARAMETER_TITLES | _OTHER_TITLES:
            return True
        return at + 1 < len(self._lines) and bool(line.strip()) and bool(_UNDERLINE.match(self._lines[at + 1]))

    def _is_section(self, title):
        """Whether entries follow: a sentence may end in 'arguments:' too."""
        for line in self._lines[self._at + 1 :]:
            if line.strip():
                return self._indent(line) > len(title.group(1)) or _ENTRY.match(line) is not None
        return True

    def _section(self, title_indent):
        self._at += 1
        entry_indent = None
        name = None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                if entry_indent is not None and entry_indent <= title_indent:
                    # Entries as far left as their title end at the first empty line.
                    break
                self._at += 1
                continue
            indent = self._indent(line)
            if self._starts_section(self._at) and indent <= title_indent or _FIELD.match(line):
                break
            entry = _ENTRY.match(line)
            if entry_indent is None:
                entry_indent = indent
            if indent < entry_indent or (indent <= title_indent and entry is None):
                break
            if indent == entry_indent and entry is not None:
                name = self._add(entry.group(2), entry.group(4))
            elif name is not None and indent > entry_indent:
                self._add(name, line.strip())
            else:
                name = None
            self._at += 1
        self._close()

    def _numpy_section(self):
        base = self._indent(self._lines[self._at])
        self._at += 2
        current = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                self._at += 1
                continue
            if self._starts_section(self._at) or self._indent(line) < base:
                break
            if self._indent(line) == base:
                entry = _NUMPY_ENTRY.match(line)
                if entry is None:
                    break
                current = [name.strip().lstrip("*") for name in entry.group(2).split(",")]
            else:
                for name in current:
                    self._add(name, line.strip())
            self._at += 1
        self._close()

    def _field(self):
        line = self._lines[self._at]
        indent = self._indent(line)
        kind, argument, text = _FIELD.match(line).groups()
        self._at += 1
        while self._at < len(self._lines):
            more = self._lines[self._at]
            if not more.strip() or self._indent(more) <= indent:
                break
            text = ("%s %s" % (text, more.strip())).strip()
            self._at += 1
        argument = argument.strip()
        if kind in ("param", "parameter", "arg", "argument", "key", "keyword"):
            if argument:
                # `:param int count:` names the type first.
                self._add(argument.split()[-1].lstrip("*"), text)
        elif kind.startswith(("return", "yield")) and text:
            self._prose.append("%s: %s" % ("Yields" if kind.startswith("yield") else "Returns", text))
        elif kind in ("raise", "raises", "except", "exception") and text:
            self._prose.append("Raises %s: %s" % (argument, text) if argument else "Raises: %s" % text)

    def _add(self, name, text):
        text = text.strip()
        known = self._found.get(name, "")
        self._found[name] = ("%s %s" % (known, text)).strip() if known else text
        return name

    def _close(self):
        # Keeps what came before apart from what follows.
        self._prose.append("")
