"""Who sees which arrow? The threat model as a small drawing."""

from __future__ import annotations

from markupsafe import Markup

from overheard.plot import tag

_CAPTIONS = {
    "eavesdropper": "The adversary sits on one client's link and reads both directions.",
    "server": "The adversary is the server, or reads every link: each client's own update.",
    "isolating-server": "The adversary is the server and feeds the client its own model back.",
    "secure-server": "The adversary is the server; it sees the sum of the updates, not one alone.",
}


def threat(name: str) -> Markup | None:
    """The drawing of a shipped threat model; none for one that we do not know."""
    if name not in _CAPTIONS:
        return None
    at_server = name != "eavesdropper"
    secure = name == "secure-server"
    parts = [tag("title", f"Threat model: {name}"), tag("desc", _CAPTIONS[name])]
    for i, label in enumerate(("client A", "client B", "client C")):
        y = 16 + 52 * i
        heard = at_server or i == 0
        link = "link" if secure or not heard else "link heard"
        end = (142 if secure else 238, 86 if secure else 62 + 24 * i)
        parts.append(_box(8, y - 2, 84, label, "node"))
        for offset in (-4, 4):
            start, finish = (94, y + 16 + offset), (end[0], end[1] + offset)
            if offset < 0:
                start, finish = finish, start
            parts.append(_arrow(start, finish, link))
    if secure:
        parts += [_box(144, 68, 50, "sum", "node"), _arrow((196, 86), (238, 86), "link heard")]
    parts.append(_box(240, 40, 92, "server", "node tapped" if at_server else "node", 92))
    x, y = (286, 40) if at_server else (166, 45)
    parts += [tag("circle", cx=x, cy=y, r="11", class_="ear"), _ear(x, y)]
    parts.append(_text("listens here", x, y - 19, "heard-label"))
    return tag("svg", *parts, class_="picture", viewBox="0 0 340 160", role="img",
               aria_label=f"Threat model {name}: {_CAPTIONS[name]}")  # fmt: skip


def _box(x: int, y: int, width: int, label: str, kind: str, height: int = 36) -> Markup:
    box = tag("rect", x=x, y=y, width=width, height=height, rx=6, class_=kind)
    return tag("g", box, _text(label, x + width // 2, y + height // 2 + 4, "label"))


def _text(words: str, x: int, y: int, kind: str) -> Markup:
    return tag("text", words, x=x, y=y, class_=kind, text_anchor="middle")


def _arrow(start: tuple[int, int], end: tuple[int, int], kind: str) -> Markup:
    """A line with a head at its end, made of shapes (a marker would need an id)."""
    (x1, y1), (x2, y2) = start, end
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    ux, uy = 7 * (x2 - x1) / length, 7 * (y2 - y1) / length
    head = " ".join(
        f"{x2 - ux + side * uy / 2:.1f},{y2 - uy - side * ux / 2:.1f}" for side in (-1, 1)
    )
    line = tag("line", x1=x1, y1=y1, x2=x2, y2=y2)
    return tag("g", line, tag("polygon", points=f"{x2},{y2} {head}"), class_=kind)


def _ear(x: int, y: int) -> Markup:
    outline = "M-3.5,2.5C-6,-7 5,-7.5 4,-0.5C3.6,2.2 1.5,2.4 1.2,4.4C0.9,6.4 -1.8,6.4 -2.4,4.4"
    inner = "M-1.2,0C-1.8,-4 2,-3.8 1.6,-0.8"
    shape = tag("path", d=outline), tag("path", d=inner)
    return tag("g", *shape, transform=f"translate({x},{y})", class_="ear-shape")
