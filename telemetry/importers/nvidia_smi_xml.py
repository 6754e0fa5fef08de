"""XML documents from strangers as small trees: no entities, no outside files, bounded depth and size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

_DEEPEST = 32
_MOST_ELEMENTS = 1_000_000
_ENDS = re.compile(r"</nvidia_smi_log\s*>")


class NotXml(Exception):
    """Why a document can't be read, and the line of the file it was noticed in."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        super().__init__(reason)


@dataclass
class Element:
    """An element: its tag, line in the file, attributes, own text, and the elements in it."""

    tag: str
    line: int
    attributes: dict[str, str]
    content: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Elements of this tag directly inside."""
        return [one for one in self.children if one.tag == tag]

    def text(self, path: str) -> str | None:
        """Text of the first element at a path such as clocks/sm_clock; None if there is none."""
        at = self
        for tag in path.split("/"):
            inside = at.all(tag)
            if not inside:
                return None
            at = inside[0]
        return at.content.strip()


def documents(text: str) -> Iterator[tuple[int, str]]:
    """The documents written one after another into one file, each with the number of its first line."""
    begin, line = 0, 1
    for end in [found.end() for found in _ENDS.finditer(text)]:
        document = text[begin:end]
        blank = len(document) - len(document.lstrip())
        yield line + document.count("\n", 0, blank), document[blank:]
        line += document.count("\n")
        begin = end
    if (rest := text[begin:]).strip():
        blank = len(rest) - len(rest.lstrip())
        yield line + rest.count("\n", 0, blank), rest[blank:]


def parse(document: str, first_line: int) -> Element:
    """The root of a document. Raises NotXml where it is none, declares entities, or is too deep or too large."""
    parser = expat.ParserCreate()
    root = Element("", first_line, {})
    open_ones = [root]
    n_elements = 0

    def refuse(reason: str) -> NotXml:
        return NotXml(first_line + parser.CurrentLineNumber - 1, reason)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal n_elements
        n_elements += 1
        if len(open_ones) > _DEEPEST or n_elements > _MOST_ELEMENTS:
            raise refuse(f"more than {_DEEPEST} levels or {_MOST_ELEMENTS} elements")
        element = Element(tag, first_line + parser.CurrentLineNumber - 1, attributes)
        open_ones[-1].children.append(element)
        open_ones.append(element)

    def end(_tag: str) -> None:
        open_ones.pop()

    def characters(data: str) -> None:
        open_ones[-1].content += data

    def entity(*_: object) -> None:
        raise refuse("it declares entities")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = characters, entity
    parser.buffer_text = True
    try:
        # An encoding named at the top speaks of the bytes in the file, which are text by now.
        parser.Parse(re.sub(r"\A<\?xml[^>]*\?>", "", document), True)
    except expat.ExpatError as error:
        raise NotXml(first_line + error.lineno - 1, f"no XML: {expat.ErrorString(error.code)}") from error
    return root.children[0]
