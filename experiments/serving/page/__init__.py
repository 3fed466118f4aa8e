"""The page: files that a browser loads as they are, from this server alone."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NAMES = frozenset(path.name for path in FOLDER.glob("*.*") if path.suffix in (".css", ".html", ".js", ".svg"))
HEADERS = {  # it loads nothing from elsewhere, and no other site may frame it
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}
