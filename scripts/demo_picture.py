"""Runs `longhaul demo` under a pseudo-terminal and prints its output as an SVG.

Usage: python3 demo_picture.py BINARY FOLDER

The text is the demo's own, without its closing hints. Long lines are truncated; colours follow the
ANSI codes of the output.
Three coloured bands mark the approval, the crash and the recovery; the script fails if it can't
find them, so that a changed demo is noticed.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from xml.sax.saxutils import escape

COLUMNS = 104
TIMEOUT_S = 60
BYTES_MAX = 60_000

# The prompt at which the demo waits for a person.
QUESTION = "a approve"
# The hints that begin here are left out.
END = "  You have seen"

# Label, colour, and the patterns of the first and the last line of each band.
BANDS = [
    ("approval", "#d29922", r"\basks\b", r"\banswered\b"),
    ("crash", "#f85149", r"killed with SIGKILL, on purpose", None),
    ("recovery", "#3fb950", r"\bresumed\b", None),
]

FONT_SIZE = 13
CHAR_WIDTH = 7.83
LINE_HEIGHT = 17
MARGIN = 14
TITLE_BAR = 34

FOREGROUND = "#e6edf3"
COLORS = {
    30: "#6e7681", 31: "#ff7b72", 32: "#3fb950", 33: "#d29922",
    34: "#58a6ff", 35: "#bc8cff", 36: "#39c5cf", 37: "#b1bac4",
}  # fmt: skip
BRIGHT = {
    90: "#8b949e", 91: "#ffa198", 92: "#56d364", 93: "#e3b341",
    94: "#79c0ff", 95: "#d2a8ff", 96: "#56d4dd", 97: "#ffffff",
}  # fmt: skip

STYLE = """
  text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
         font-size: %(size)dpx; fill: %(fill)s; white-space: pre }
  .title { fill: #8b949e; text-anchor: middle }
  .label { font-weight: bold; text-anchor: end }
""" % {"size": FONT_SIZE, "fill": FOREGROUND}

TITLE = "longhaul demo: an agent is approved, killed and resumed"
DESCRIPTION = (
    "Terminal output of a real run. An agent reads six notes, makes a plan and waits for a person to "
    "approve it. After the approval it writes three notes. Its worker process is then killed with "
    "SIGKILL. A new worker resumes the run and finishes it. The summary counts the model and tool "
    "calls that were recorded before the crash and how many of them were repeated: none."
)


def run_demo(binary, folder):
    """Runs the demo, approves its plan, and returns what the terminal received."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.pop("NO_COLOR", None)
        os.environ["TERM"] = "xterm-256color"
        os.execv(binary, ["longhaul", "demo"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 70, COLUMNS, 0, 0))
    output = read_to_end(pid, terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        sys.exit(f"longhaul demo ended with {status}:\n{output}")
    return output


def read_to_end(pid, terminal):
    received = b""
    approved = False
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            sys.exit(f"longhaul demo took more than {TIMEOUT_S} s")
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux reports the end of a pseudo-terminal as EIO.
            chunk = b""
        if not chunk:
            return received.decode()
        received += chunk
        if not approved and QUESTION.encode() in received:
            approved = True
            time.sleep(0.5)
            os.write(terminal, b"a\n")


def styled_lines(output):
    """Splits the output into lines of (style, text) spans. Longer lines than COLUMNS are truncated."""
    codes = []
    for line in output.replace("\r", "").split("\n"):
        spans, width_left = [], COLUMNS
        for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", line):
            if part.startswith("\x1b"):
                if part.endswith("m"):
                    codes = next_codes(codes, part[2:-1])
            elif part and width_left > 0:
                text = part if len(part) <= width_left else part[: width_left - 1] + "\u2026"
                spans.append((style(codes), text))
                width_left -= len(text)
        yield spans


def next_codes(codes, parameters):
    for code in (int(code or 0) for code in parameters.split(";")):
        codes = [] if code == 0 else [*codes, code]
    return codes


def style(codes):
    """The SVG attributes of a list of ANSI codes."""
    attributes = {}
    for code in codes:
        if code in COLORS or code in BRIGHT:
            attributes["fill"] = (COLORS | BRIGHT)[code]
        elif code == 39:
            attributes.pop("fill", None)
        elif code == 1:
            attributes["font-weight"] = "bold"
        elif code == 2:
            attributes["fill-opacity"] = "0.65"
        elif code == 22:
            attributes.pop("font-weight", None)
            attributes.pop("fill-opacity", None)
    return "".join(f' {name}="{value}"' for name, value in attributes.items())


def plain(spans):
    return "".join(text for _, text in spans)


def shown(output):
    """The lines of the picture: the command, then the output without its closing hints."""
    lines = list(styled_lines(output))
    ends = [row for row, spans in enumerate(lines) if plain(spans).startswith(END)]
    if not ends:
        sys.exit(f"no line begins with {END!r}:\n{output}")
    lines = lines[: ends[0]]
    while lines and not plain(lines[-1]).strip():
        lines.pop()
    return [[(style([32]), "$ "), (style([1]), "longhaul demo")], *lines]


def find(lines, pattern, start=0):
    for row in range(start, len(lines)):
        if re.search(pattern, plain(lines[row])):
            return row
    sys.exit(f"no line of the demo matches {pattern!r}")


def number(value):
    return f"{value:.1f}".removesuffix(".0")


def draw(lines):
    width = COLUMNS * CHAR_WIDTH + 2 * MARGIN
    height = TITLE_BAR + len(lines) * LINE_HEIGHT + 2 * MARGIN
    top = TITLE_BAR + MARGIN
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}"'
        f' width="{number(width)}" height="{number(height)}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(TITLE)}</title>',
        f'<desc id="desc">{escape(DESCRIPTION)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{number(width - 1)}" height="{number(height - 1)}" rx="10"'
        ' fill="#0d1117" stroke="#484f58"/>',
        *(
            f'<circle cx="{20 + 20 * index}" cy="{TITLE_BAR / 2 + 1:g}" r="6" fill="{color}"/>'
            for index, color in enumerate(["#ff5f57", "#febc2e", "#28c840"])
        ),
        f'<text class="title" x="{number(width / 2)}" y="{TITLE_BAR - 12}">longhaul demo</text>',
    ]
    for label, color, first, last in BANDS:
        begin = find(lines, first)
        end = find(lines, last, begin) if last else begin
        y = top + begin * LINE_HEIGHT
        rows = (end - begin + 1) * LINE_HEIGHT
        svg += [
            f'<rect x="1" y="{y}" width="{number(width - 2)}" height="{rows}" fill="{color}" fill-opacity="0.13"/>',
            f'<rect x="1" y="{y}" width="4" height="{rows}" fill="{color}"/>',
            f'<text class="label" x="{number(width - MARGIN)}" y="{y + 13}" style="fill: {color}">{label}</text>',
        ]
    for row, spans in enumerate(lines):
        if plain(spans).strip():
            svg.append(text_element(spans, top + row * LINE_HEIGHT + 13))
    return "\n".join([*svg, "</svg>", ""])


def text_element(spans, y):
    indent = len(plain(spans)) - len(plain(spans).lstrip())
    first_style, first_text = spans[0]
    spans = [(first_style, first_text.lstrip()), *spans[1:]]
    inner = "".join(
        f"<tspan{attributes}>{escape(text)}</tspan>" if attributes else escape(text)
        for attributes, text in spans
        if text
    )
    x = number(MARGIN + indent * CHAR_WIDTH)
    return f'<text x="{x}" y="{y}" xml:space="preserve">{inner}</text>'


def main():
    binary, folder = sys.argv[1:]
    svg = draw(shown(run_demo(binary, folder)))
    if len(svg.encode()) > BYTES_MAX:
        sys.exit(f"the picture has more than {BYTES_MAX} bytes")
    sys.stdout.buffer.write(svg.encode())


main()
