"""Runs `longhaul demo` under a pseudo-terminal and prints its output as an SVG.

Usage: python3 demo_picture.py BINARY FOLDER

The SVG has the text and the ANSI colours of the output, without the closing hints. Long lines are
truncated. Three coloured bands mark the approval, the crash and the recovery. The script fails if
the lines of a band are missing, so that a changed demo is noticed.
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

# Part of the prompt at which the demo waits for an approval.
APPROVAL_PROMPT = "a approve"
# Prefix of the first line of the closing hints, which are left out.
CLOSING_HINTS_PREFIX = "  You have seen"

# Label, colour, and the patterns of the first and the last line of each band. A band without a last
# pattern has one line.
BANDS = [
    ("approval", "#d29922", r"\basks\b", r"\banswered\b"),
    ("crash", "#f85149", r"killed with SIGKILL, on purpose", None),
    ("recovery", "#3fb950", r"\bresumed\b", None),
]

FONT_SIZE = 13
CHAR_WIDTH = 7.83
LINE_HEIGHT = 17
MARGIN = 14
TITLE_BAR_HEIGHT = 34

FOREGROUND = "#e6edf3"
COLORS = {
    30: "#6e7681", 31: "#ff7b72", 32: "#3fb950", 33: "#d29922",
    34: "#58a6ff", 35: "#bc8cff", 36: "#39c5cf", 37: "#b1bac4",
}  # fmt: skip
BRIGHT_COLORS = {
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
    """Runs the demo, approves its plan, and returns its output."""
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
    """Reads the output until the demo ends, and approves the plan at the prompt."""
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
        if not approved and APPROVAL_PROMPT.encode() in received:
            approved = True
            time.sleep(0.5)
            os.write(terminal, b"a\n")


def styled_lines(output):
    """Splits the output into lines of (style, text) spans, truncated to COLUMNS characters."""
    codes = []
    for line in output.replace("\r", "").split("\n"):
        spans, width_left = [], COLUMNS
        for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", line):
            if part.startswith("\x1b"):
                if part.endswith("m"):
                    codes = apply_codes(codes, part[2:-1])
            elif part and width_left > 0:
                text = part if len(part) <= width_left else part[: width_left - 1] + "\u2026"
                spans.append((style(codes), text))
                width_left -= len(text)
        yield spans


def apply_codes(codes, parameters):
    """Returns the ANSI codes in effect after an escape sequence with these parameters."""
    for code in (int(code or 0) for code in parameters.split(";")):
        codes = [] if code == 0 else [*codes, code]
    return codes


def style(codes):
    """Returns the SVG attributes for a list of ANSI codes."""
    attributes = {}
    for code in codes:
        if code in COLORS or code in BRIGHT_COLORS:
            attributes["fill"] = (COLORS | BRIGHT_COLORS)[code]
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


def plain_text(spans):
    return "".join(text for _, text in spans)


def picture_lines(output):
    """Returns the lines of the picture: the command, and the output without the closing hints."""
    lines = list(styled_lines(output))
    is_hint = [plain_text(spans).startswith(CLOSING_HINTS_PREFIX) for spans in lines]
    if True not in is_hint:
        sys.exit(f"no line begins with {CLOSING_HINTS_PREFIX!r}:\n{output}")
    lines = lines[: is_hint.index(True)]
    while lines and not plain_text(lines[-1]).strip():
        lines.pop()
    return [[(style([32]), "$ "), (style([1]), "longhaul demo")], *lines]


def find_row(lines, pattern, start=0):
    """Returns the index of the first line that matches the pattern."""
    for row in range(start, len(lines)):
        if re.search(pattern, plain_text(lines[row])):
            return row
    sys.exit(f"no line of the demo matches {pattern!r}")


def format_number(value):
    """Formats a number with at most one decimal place."""
    return f"{value:.1f}".removesuffix(".0")


def draw(lines):
    """Returns the SVG of these lines."""
    width = COLUMNS * CHAR_WIDTH + 2 * MARGIN
    height = TITLE_BAR_HEIGHT + len(lines) * LINE_HEIGHT + 2 * MARGIN
    top = TITLE_BAR_HEIGHT + MARGIN
    svg_width, svg_height = format_number(width), format_number(height)
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {svg_width} {svg_height}"'
        f' width="{svg_width}" height="{svg_height}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(TITLE)}</title>',
        f'<desc id="desc">{escape(DESCRIPTION)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{format_number(width - 1)}"'
        f' height="{format_number(height - 1)}" rx="10" fill="#0d1117" stroke="#484f58"/>',
        *(
            f'<circle cx="{20 + 20 * index}" cy="{TITLE_BAR_HEIGHT / 2 + 1:g}" r="6"'
            f' fill="{color}"/>'
            for index, color in enumerate(["#ff5f57", "#febc2e", "#28c840"])
        ),
        f'<text class="title" x="{format_number(width / 2)}" y="{TITLE_BAR_HEIGHT - 12}">'
        "longhaul demo</text>",
    ]
    for label, color, first_pattern, last_pattern in BANDS:
        first_row = find_row(lines, first_pattern)
        last_row = find_row(lines, last_pattern, first_row) if last_pattern else first_row
        y = top + first_row * LINE_HEIGHT
        band_height = (last_row - first_row + 1) * LINE_HEIGHT
        svg += [
            f'<rect x="1" y="{y}" width="{format_number(width - 2)}" height="{band_height}"'
            f' fill="{color}" fill-opacity="0.13"/>',
            f'<rect x="1" y="{y}" width="4" height="{band_height}" fill="{color}"/>',
            f'<text class="label" x="{format_number(width - MARGIN)}" y="{y + 13}"'
            f' style="fill: {color}">{label}</text>',
        ]
    for row, spans in enumerate(lines):
        if plain_text(spans).strip():
            svg.append(text_element(spans, top + row * LINE_HEIGHT + 13))
    return "\n".join([*svg, "</svg>", ""])


def text_element(spans, y):
    """Returns the SVG element of one line of text."""
    indent = len(plain_text(spans)) - len(plain_text(spans).lstrip())
    first_style, first_text = spans[0]
    spans = [(first_style, first_text.lstrip()), *spans[1:]]
    content = "".join(
        f"<tspan{attributes}>{escape(text)}</tspan>" if attributes else escape(text)
        for attributes, text in spans
        if text
    )
    x = format_number(MARGIN + indent * CHAR_WIDTH)
    return f'<text x="{x}" y="{y}" xml:space="preserve">{content}</text>'


def main():
    binary, folder = sys.argv[1:]
    svg = draw(picture_lines(run_demo(binary, folder)))
    if len(svg.encode()) > BYTES_MAX:
        sys.exit(f"the picture has more than {BYTES_MAX} bytes")
    sys.stdout.buffer.write(svg.encode())


main()
