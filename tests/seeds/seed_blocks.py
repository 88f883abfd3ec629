"""Code blocks out of plain texts: paragraphs that are Python, and lines whose breaks the text lost."""

from __future__ import annotations

import ast
import io
import re
import tokenize

COMPOUND = re.compile(r"(class|def|with|for|if|while|try|else|elif|except|finally)\b")


def code_blocks(text: str) -> list[str]:
    """Every code block of ``text``, in order, with line breaks restored where the text has none."""
    blocks: list[str] = []
    for paragraph in _paragraphs(text):
        if _is_code(paragraph):
            blocks.append(paragraph)
            continue
        for line in paragraph.splitlines():
            restored = restore_lines(line)
            if restored is not None:
                blocks.append(restored)
    return blocks


def _paragraphs(text: str) -> list[str]:
    """Paragraphs; one that starts indented continues the one before it."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n(?=\S)|\n(?:[ \t]*\n)+(?=[ \t]+\S)", text):
        if found and paragraph[:1] in " \t":
            found[-1] += "\n\n" + paragraph
        else:
            found.append(paragraph.strip("\n"))
    return found


def _is_code(paragraph: str) -> bool:
    if not paragraph.isascii():
        return False
    try:
        body = ast.parse(paragraph).body
    except SyntaxError:
        return False
    # A heading of one word is a name to Python.
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Name)) for node in body)


def restore_lines(line: str) -> str | None:
    """Python source of a line that holds several statements without breaks, or None if it is no such line."""
    if not line.isascii() or "(" not in line:
        return None
    pieces = _statements(line.strip())
    # Words of a sentence are names to Python.
    if pieces is None or len(pieces) < 2 or any(piece.isidentifier() for piece in pieces):
        return None
    source, indent, class_indent = [], 0, None
    for piece in pieces:
        if piece.startswith(("import ", "from ", "class ")):
            indent, class_indent = 0, None
        elif piece.startswith("def ") and class_indent is not None and "(self" in piece:
            indent = class_indent + 1
        source.append("    " * indent + piece)
        if piece.startswith("class "):
            class_indent = indent
        if piece.endswith(":"):
            indent += 1
        elif piece.startswith("return"):
            indent = 0
    restored = "\n".join(source)
    try:
        ast.parse(restored)
    except SyntaxError:
        return None
    return restored


def _statements(line: str) -> list[str] | None:
    """The longest Python statements or headers one after the other in ``line``; None if something is left."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(line).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return None
    ends = [token.end[1] for token in tokens if token.type not in (tokenize.NEWLINE, tokenize.ENDMARKER)]
    pieces, start = [], 0
    while start < len(line):
        valid = [end for end in ends if end > start and _is_statement(line[start:end].strip())]
        if not valid:
            return None
        pieces.append(line[start : max(valid)].strip())
        start = max(valid)
        if not line[start:].strip():
            break
    return pieces


def _is_statement(source: str) -> bool:
    if source.endswith(":"):
        source += " pass"
    elif COMPOUND.match(source):
        return False
    try:
        body = ast.parse(source.replace("return ", "", 1) if source.startswith("return ") else source).body
    except SyntaxError:
        return False
    return len(body) == 1 and ";" not in source
